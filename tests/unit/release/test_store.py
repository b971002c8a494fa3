"""The folder of releases: whole or not at all, whatever happens in between."""

from __future__ import annotations

import errno
import os
import re
import signal
import stat
import subprocess
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from archonctl.errors import HostRefusal
from archonctl.release import disk, store
from archonctl.release.disk import holds, sweep
from archonctl.release.store import write_folder, write_release
from archonctl.release.values import Release, ReleaseFile

Render = Callable[..., Release]
Writer = Callable[[Release, Path], store.Written]
_CALLS = ("mkdir", "open", "write", "fsync", "fchmod", "rename", "symlink", "unlink", "rmdir", "chmod", "close")


@pytest.fixture(autouse=True)
def quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill is no power cut: what was written is in the kernel's hands, and need not be waited for."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def refusal(write: Writer, release: Release, out: Path) -> HostRefusal:
    with pytest.raises(HostRefusal) as caught:
        write(release, out)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 5
    return caught.value


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def leftovers(*folders: Path) -> list[str]:
    return [name for folder in folders for name in names(folder) if name.startswith(".")]


def mount(*words: str | Path) -> bool:
    return subprocess.run([*words], capture_output=True, check=False, timeout=30).returncode == 0


def snapshot(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    return {
        str(path.relative_to(folder)): (path.lstat().st_ino, path.lstat().st_mtime_ns, path.read_bytes())
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_a_release_is_stored_by_its_digest_and_made_current(rendered: Render, out: Path) -> None:
    release = rendered("a")
    written = write_release(release, out)
    assert written == store.Written(out / release.digest[:16], True)
    assert (out / "current").readlink() == Path(release.digest[:16])
    assert holds(out / "current", release.files)
    assert stat.S_IMODE((out / "current" / "start").stat().st_mode) == 0o755
    assert names(out) == sorted([release.digest[:16], "current"])


@pytest.mark.parametrize("write", [write_release, write_folder])
def test_nothing_is_written_when_nothing_changed(write: Writer, rendered: Render, out: Path) -> None:
    first = write(rendered("a"), out)
    before = snapshot(out)
    second = write(rendered("a"), out)
    assert (first.changed, second.changed) == (True, False)
    assert first.path == second.path
    assert snapshot(out) == before


def test_every_file_and_folder_is_on_disk_before_its_name_counts(
    rendered: Render, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    real = os.rename

    def rename(old: Path, new: Path) -> None:
        steps.append(f"-> {Path(new).name}")
        real(old, new)

    monkeypatch.setattr(os, "fsync", lambda handle: steps.append(Path(f"/proc/self/fd/{handle}").readlink().name))
    monkeypatch.setattr(os, "rename", rename)
    release = rendered("a")
    write_release(release, out)
    for name in release.files:
        at = steps.index(f"-> {name}")
        assert steps[at - 1].startswith(f".{name}.")
    staged = steps.index(f"-> {release.digest[:16]}")
    assert steps[staged - 1].startswith(f".{release.digest[:16]}.")
    assert steps[staged + 1 :] == ["out", "-> current", "out"]


def test_earlier_releases_stay_and_can_become_current_again(rendered: Render, out: Path) -> None:
    first, second = rendered("a"), rendered("b")
    write_release(first, out)
    write_release(second, out)
    assert holds(out / first.digest[:16], first.files)
    assert write_release(first, out).changed
    assert holds(out / "current", first.files)


def test_an_edited_release_is_made_whole_again(rendered: Render, out: Path) -> None:
    release = rendered("a")
    place = write_release(release, out).path
    for change in (
        lambda: (place / "start").write_text("rm -rf /"),
        (place / "x").touch,
        (place / "start").unlink,
    ):
        change()
        assert write_release(release, out).changed
        assert holds(place, release.files)
    assert names(out) == sorted([release.digest[:16], "current"])


def test_a_plain_folder_holds_the_release_and_is_replaced_whole(rendered: Render, out: Path) -> None:
    first, second = rendered("a"), rendered("b", name="other")
    assert write_folder(first, out).path == out
    assert holds(out, first.files)
    assert write_folder(second, out).changed
    assert holds(out, second.files)
    assert names(out.parent).count("out") == 1
    assert leftovers(out.parent) == []


def test_a_plain_folder_that_cannot_be_exchanged_is_replaced_file_by_file(
    rendered: Render, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_folder(rendered("a"), out)
    with monkeypatch.context() as patched:
        patched.setattr(store, "exchange", lambda first, second: False)
        release = rendered("b", name="other")
        write_folder(release, out)
        assert holds(out, release.files)
    monkeypatch.chdir(out)
    write_folder(rendered("c"), Path())
    assert holds(Path(), rendered("c").files)


def test_the_mode_of_a_plain_folder_stays(rendered: Render, out: Path) -> None:
    out.mkdir(mode=0o700)
    write_folder(rendered("a"), out)
    assert stat.S_IMODE(out.stat().st_mode) == 0o700


def test_a_folder_with_other_files_is_refused_and_untouched(rendered: Render, out: Path) -> None:
    out.mkdir()
    (out / "thesis.txt").write_text("years of work")
    (out / "release.json").write_text('{"schema": "x", "files": {"thesis.txt": {}}}')
    found = refusal(write_folder, rendered("a"), out)
    assert found.code == "release-folder-not-ours"
    assert "thesis.txt" in found.message
    assert (out / "thesis.txt").read_text() == "years of work"


def test_a_link_in_the_place_of_a_file_is_not_written_through(rendered: Render, out: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    out.mkdir()
    (out / "engine.env").symlink_to(victim)
    assert refusal(write_folder, rendered("a"), out).code == "release-folder-not-ours"
    assert victim.read_text() == "precious"


@pytest.mark.parametrize("write", [write_release, write_folder])
def test_a_file_or_a_dangling_link_in_the_place_of_the_folder_is_refused(
    write: Writer, rendered: Render, out: Path, tmp_path: Path
) -> None:
    out.write_text("a file")
    assert refusal(write, rendered("a"), out).code == "release-out-not-a-directory"
    assert refusal(write, rendered("a"), out / "below").code == "release-out-not-a-directory"
    assert refusal(write, rendered("a"), out / "below" / "that").code == "release-out-not-a-directory"
    (tmp_path / "dangling").symlink_to("nowhere")
    assert refusal(write, rendered("a"), tmp_path / "dangling").code == "release-out-not-a-directory"
    assert out.read_text() == "a file"


def test_something_else_in_the_place_of_current_is_refused(rendered: Render, out: Path) -> None:
    (out / "current").mkdir(parents=True)
    assert refusal(write_release, rendered("a"), out).code == "release-out-not-a-directory"


@pytest.mark.parametrize("write", [write_release, write_folder])
def test_a_folder_that_others_can_write_to_is_refused(write: Writer, rendered: Render, out: Path) -> None:
    out.mkdir()
    out.chmod(0o1777)
    assert refusal(write, rendered("a"), out).code == "release-unsafe-folder"
    assert names(out) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make files of another user")
def test_what_another_user_has_planted_is_refused(rendered: Render, out: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    out.symlink_to(victim)
    os.lchown(out, 65534, 65534)
    for write in (write_release, write_folder):
        assert refusal(write, rendered("a"), out).code == "release-unsafe-folder"
    assert names(victim) == []
    os.chown(victim, 65534, 65534)
    assert refusal(write_release, rendered("a"), victim).code == "release-unsafe-folder"
    write_folder(rendered("a"), victim)
    assert (victim.stat().st_uid, (victim / "start").stat().st_uid) == (65534, 0)


@pytest.mark.parametrize("write", [write_release, write_folder])
def test_a_link_of_ones_own_to_a_folder_is_followed(write: Writer, rendered: Render, out: Path, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    out.symlink_to("real")
    for word in "ab":
        write(rendered(word), out)
    assert out.is_symlink()
    held = tmp_path / "real" / ("current" if write is write_release else "")
    assert holds(held, rendered("b").files)


def failing(number: int, call: str) -> Callable[..., object]:
    def fail(*args: object, **kwargs: object) -> object:
        raise OSError(number, os.strerror(number))

    return fail


@pytest.mark.parametrize("write", [write_release, write_folder])
@pytest.mark.parametrize("call", ["write", "fsync", "rename", "open"])
@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.ENOSPC, "release-disk-full"),
        (errno.EDQUOT, "release-disk-full"),
        (errno.EROFS, "release-not-writable"),
        (errno.EACCES, "release-not-writable"),
        (errno.EIO, "release-not-writable"),
    ],
)
def test_a_refusing_disk_is_one_error_and_leaves_the_old_release(
    write: Writer, call: str, number: int, code: str, rendered: Render, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = rendered("a"), rendered("b")
    place = out / "current" if write is write_release else out
    write(old, out)
    with monkeypatch.context() as patch:
        patch.setattr(os, call, failing(number, call))
        found = refusal(write, new, out)
    assert found.code == code
    assert holds(place, old.files)
    write(new, out)
    assert holds(place, new.files)
    assert leftovers(out, out.parent) == []


def test_a_full_file_system_is_told(rendered: Render, out: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root to mount a small file system")
    out.mkdir()
    if not mount("mount", "-t", "tmpfs", "-o", "size=16k,mode=755", "tmpfs", out):
        pytest.skip("may not mount here")
    try:
        assert refusal(write_release, rendered("x" * 60_000), out).code == "release-disk-full"
        assert refusal(write_folder, rendered("x" * 60_000), out / "plain").code == "release-disk-full"
        assert names(out) == []
        assert mount("mount", "-o", "remount,ro", out)
        assert refusal(write_release, rendered("a"), out).code == "release-not-writable"
        assert refusal(write_folder, rendered("a"), out).code == "release-not-writable"
        assert refusal(write_folder, rendered("a"), out / "plain").code == "release-not-writable"
    finally:
        mount("umount", out)


def killed_after(steps: int, write: Writer, release: Release, out: Path, prepare: Callable[[], None]) -> bool:
    """Run the writer in a child that is killed before its system call number ``steps``; True if it was."""
    pid = os.fork()
    if pid == 0:
        left = [steps]

        def counted(name: str) -> None:
            real = getattr(os, name)

            def call(*args: object, **kwargs: object) -> object:
                left[0] -= 1
                if left[0] < 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                return real(*args, **kwargs)

            setattr(os, name, call)

        try:
            prepare()
            for name in _CALLS:
                counted(name)
            write(release, out)
        except BaseException:  # noqa: BLE001  the child of a fork must not return into pytest
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    status = os.waitpid(pid, 0)[1]
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)


@pytest.mark.parametrize("write", [write_release, write_folder])
@pytest.mark.parametrize("first", [True, False])
def test_a_kill_between_any_two_steps_leaves_the_old_release_or_the_new_one(
    write: Writer, first: bool, rendered: Render, tmp_path: Path
) -> None:
    old, new = rendered("a"), rendered("b")
    for steps in range(1000):
        parent = tmp_path / f"{steps}"
        parent.mkdir()
        out = parent / "out"
        place = out / "current" if write is write_release else out
        if not first:
            write(old, out)
        killed = killed_after(steps, write, new, out, lambda: None)
        states = (
            [not place.exists(), holds(place, new.files)]
            if first
            else [holds(place, old.files), holds(place, new.files)]
        )
        assert any(states), (steps, names(parent))
        write(new, out)
        assert holds(place, new.files)
        assert leftovers(out, parent) == []
        if not killed:
            assert steps > 40
            return
    pytest.fail("the writer never came to its end")


def test_a_kill_while_files_are_replaced_one_by_one_never_leaves_half_a_file(rendered: Render, tmp_path: Path) -> None:
    """Where a folder cannot be exchanged: each file is an old or a new one, and the next write heals the rest."""
    old, new = rendered("a"), rendered("b")

    def no_exchange() -> None:
        setattr(store, "exchange", lambda first, second: False)  # noqa: B010  in the child only

    for steps in range(1000):
        out = tmp_path / f"{steps}" / "out"
        out.parent.mkdir()
        write_folder(old, out)
        killed = killed_after(steps, write_folder, new, out, no_exchange)
        for name in new.files:
            assert (out / name).read_bytes() in (old.files[name].content, new.files[name].content)
        write_folder(new, out)
        assert holds(out, new.files)
        if not killed:
            return
    pytest.fail("the writer never came to its end")


def test_only_leftovers_of_dead_processes_and_of_our_own_are_swept(tmp_path: Path) -> None:
    alive = f".out.archonctl-{os.getppid()}-abc"
    for name in (".out.archonctl-4194399-abc", alive, ".other.archonctl-4194399-abc", ".out.archonctl-x", "keep"):
        (tmp_path / name).mkdir()
    sweep(tmp_path, "out")
    assert names(tmp_path) == sorted([alive, ".other.archonctl-4194399-abc", ".out.archonctl-x", "keep"])
    if os.geteuid() == 0:
        os.chown(tmp_path / ".other.archonctl-4194399-abc", 65534, 65534)
        sweep(tmp_path)
        assert ".other.archonctl-4194399-abc" in names(tmp_path)
    sweep(tmp_path / "nowhere")


def test_two_writers_of_one_release_do_no_harm(rendered: Render, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    release = rendered("a")
    real = disk.stage

    def slower(parent: Path, name: str, files: Mapping[str, ReleaseFile]) -> Path:
        staged = real(parent, name, files)
        monkeypatch.setattr(store, "stage", real)
        write_release(release, out)
        return staged

    monkeypatch.setattr(store, "stage", slower)
    monkeypatch.setattr(disk, "_LEFTOVER", re.compile("never"))
    write_release(release, out)
    assert holds(out / "current", release.files)
    assert len(names(out)) == 2
