"""A change that is killed at any write, or loses the machine: what is left has a name, and the next command ends it."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from archonctl.errors import ArchonError
from archonctl.service import transaction
from archonctl.service.interrupts import Interrupted
from support.kills import CHANGES, FULL, Counter, killed_at
from support.simd import Simd, digest_of, do_apply, do_rollback, machine

Again = Callable[[Simd], object]


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """In memory: hundreds of machines, each with dozens of fsyncs."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as folder:
        yield Path(folder)


def start_point(folder: Path) -> Simd:
    simd = machine(folder, ccc="broken")
    do_apply(simd, "a")
    simd.add_dependant("proxy.service")
    return simd


def killed_apply(simd: Simd, number: int, word: str) -> bool:
    def work(counter: Counter) -> None:
        simd.tick = counter.tick
        do_apply(simd, word)

    return killed_at(number, work)


def check_between(simd: Simd, words: tuple[str, ...]) -> None:
    """After a kill: an engine of a known release runs, or a half-done change says why none does."""
    known = {digest_of(word, simd.root) for word in words}
    pending = transaction.load(simd.installed.folder)
    assert simd.installed.current() in known
    simd.installed.stored(simd.installed.current())  # complete, whatever was being written
    assert simd.installed.history().unreadable <= 1
    if simd.running == "":
        assert pending is not None
        assert {pending.new, pending.old} <= known
    else:
        assert simd.running in known
        assert simd.running == simd.installed.current() or pending is not None
    if pending is None:
        assert simd.ran_with == simd.installed.placed()
    else:
        assert "proxy.service" in pending.dependants or simd.unit("proxy.service") == "active"


def check_end(simd: Simd, word: str) -> None:
    """After the next command: one release, whole, running, recorded; nothing half done."""
    digest = digest_of(word, simd.root)
    assert simd.installed.pending() is None
    assert simd.running == simd.installed.current() == digest
    assert simd.ran_with == simd.installed.placed() == simd.installed.stored(digest).files["drop-in.conf"].decode()
    last = simd.installed.history().last(digest)
    assert last is not None
    assert last.held
    assert simd.unit("proxy.service") == "active"
    assert not [p for p in simd.installed.folder.rglob(".*") if "releases" not in p.parts]


def every_kill(folder: Path, word: str, then: Again, end: str) -> int:
    """Kill an apply of ``word`` at each of its changes in turn, then do ``then``; how many points there were."""
    pattern = folder / "pattern"
    start_point(pattern)
    number = 0
    while True:
        number += 1
        place = folder / f"{number}"
        shutil.copytree(pattern, place, symlinks=True)
        simd = Simd(place, {digest_of("ccc", place): "broken"})
        if not killed_apply(simd, number, word):
            return number - 1
        check_between(simd, ("a", word))
        then(simd)
        check_end(simd, end)
        shutil.rmtree(place)


def test_killed_at_any_change_the_next_apply_ends_at_the_new_release(tmp_path: Path) -> None:
    assert every_kill(tmp_path, "bb", lambda simd: do_apply(simd, "bb"), "bb") > 40


def test_killed_at_any_change_on_the_way_back_the_next_rollback_ends_at_the_old_release(tmp_path: Path) -> None:
    def then(simd: Simd) -> None:
        if simd.installed.pending() is None and simd.running == digest_of("a", simd.root):
            do_apply(simd, "a")  # killed before anything was touched, or after all was done
        else:
            do_rollback(simd, "" if simd.installed.pending() else digest_of("a", simd.root))

    assert every_kill(tmp_path, "ccc", then, "a") > 60


def test_killed_at_any_change_another_release_can_be_applied(tmp_path: Path) -> None:
    assert every_kill(tmp_path, "bb", lambda simd: do_apply(simd, "dddd"), "dddd") > 40


def test_a_power_cut_at_any_change_leaves_what_boots_and_is_finished(tmp_path: Path) -> None:
    def then(simd: Simd) -> None:
        simd.reboot()
        simd.add_dependant("proxy.service")  # enabled: it comes back with the machine
        do_apply(simd, "bb")

    assert every_kill(tmp_path, "bb", then, "bb") > 40


def test_killed_while_it_resumes_it_resumes_again(tmp_path: Path) -> None:
    """Two kills: every point of the resumption, after a kill in the middle of the change."""
    pattern = tmp_path / "pattern"
    simd = start_point(pattern)
    assert killed_apply(simd, 30, "bb")
    number = 0
    while True:
        number += 1
        place = tmp_path / f"{number}"
        shutil.copytree(pattern, place, symlinks=True)
        simd = Simd(place)
        if not killed_apply(simd, number, "bb"):
            break
        check_between(simd, ("a", "bb"))
        do_apply(simd, "bb")
        check_end(simd, "bb")
    assert number > 10


def full_from(simd: Simd, number: int, word: str, monkeypatch: pytest.MonkeyPatch) -> ArchonError | None:
    with monkeypatch.context() as patch:
        for name in CHANGES:
            patch.setattr(os, name, getattr(os, name))
        counter = Counter(number, FULL)
        for name in ("write", "mkdir", "symlink"):  # what needs room; a rename or an unlink still works
            setattr(os, name, counter._counted(getattr(os, name), name))
        try:
            do_apply(simd, word)
        except ArchonError as err:
            return err
        return None


def test_a_disk_that_is_full_from_any_write_on_never_takes_the_endpoint_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pattern = tmp_path / "pattern"
    start_point(pattern)
    number, errors = 0, 0
    while True:
        number += 1
        place = tmp_path / f"{number}"
        shutil.copytree(pattern, place, symlinks=True)
        simd = Simd(place)
        err = full_from(simd, number, "bb", monkeypatch)
        assert simd.running in (digest_of("a", place), digest_of("bb", place))
        assert simd.unit("proxy.service") == "active"
        if err is None:
            break
        errors += 1
        assert err.exit_code == 5, err
        do_apply(simd, "bb")
        check_end(simd, "bb")
    assert errors > 5


@pytest.mark.parametrize("step", ["stop", "start", "judge"])
def test_ctrl_c_after_the_stop_goes_back_and_says_so(tmp_path: Path, step: str) -> None:
    simd = start_point(tmp_path)
    strike = Strike(simd, step)
    result = do_apply(simd, "bb")
    assert strike.done
    assert result.outcome == "rolled back"
    assert "interrupted" in result.attempts[0].reasons[0]
    check_end(simd, "a")


def test_ctrl_c_before_the_stop_changes_nothing(tmp_path: Path) -> None:
    simd = start_point(tmp_path)
    before = simd.installed.placed()
    Strike(simd, "reload")
    with pytest.raises(Interrupted):
        do_apply(simd, "bb")
    assert (simd.installed.placed(), simd.running) == (before, digest_of("a", tmp_path))
    assert simd.installed.pending() is None
    check_end(simd, "a")


def test_a_second_ctrl_c_on_the_way_back_leaves_a_named_state_and_says_what_ends_it(tmp_path: Path) -> None:
    simd, events = start_point(tmp_path), []
    simd.engines = {digest_of("bb", tmp_path): "broken"}
    seen: list[str] = []

    def tick() -> None:
        if (pending := simd.installed.pending()) and pending.phase == "undoing" and len(seen) < 2:
            seen.append(pending.phase)
            os.kill(os.getpid(), signal.SIGINT)

    simd.tick = tick
    with pytest.raises(Interrupted):
        do_apply(simd, "bb", events=events)
    said = [event.text for event in events]
    assert any("left half done: archonctl apply tiny, or archonctl rollback tiny, finishes it" in text for text in said)
    simd.tick = lambda: None
    do_rollback(simd)
    check_end(simd, "a")


def test_one_ctrl_c_on_the_way_back_does_not_tear_it_and_is_told(tmp_path: Path) -> None:
    simd, events = start_point(tmp_path), []
    simd.engines = {digest_of("bb", tmp_path): "broken"}
    struck: list[bool] = []

    def tick() -> None:
        if (pending := simd.installed.pending()) and pending.phase == "undoing" and not struck:
            struck.append(True)
            os.kill(os.getpid(), signal.SIGINT)

    simd.tick = tick
    assert do_apply(simd, "bb", events=events).outcome == "rolled back"
    assert any("once more leaves it half done" in event.text for event in events)
    check_end(simd, "a")


class Strike:
    """Sends SIGINT to this process once, at the first change within one step."""

    def __init__(self, simd: Simd, step: str) -> None:
        self.done = False

        def tick() -> None:
            frame = sys._getframe(1)
            if not self.done and frame.f_code.co_name == step:
                self.done = True
                os.kill(os.getpid(), signal.SIGINT)

        simd.tick = tick


def test_a_history_cut_anywhere_is_read_as_far_as_it_goes_and_written_on(tmp_path: Path) -> None:
    simd = machine(tmp_path)
    do_apply(simd, "a")
    do_apply(simd, "bb")
    file = simd.installed.history_file
    whole = file.read_bytes()
    first = whole.index(b"\n") + 1
    for length in range(first, len(whole)):
        file.write_bytes(whole[:length])
        found = simd.installed.history()
        assert len(found.records) == (2 if length == len(whole) - 1 else 1)
    file.write_bytes(whole[: first + 40])
    do_apply(simd, "ccc")
    found = simd.installed.history()
    assert [r.release for r in found.records] == [digest_of(w, tmp_path) for w in ("a", "ccc")]
    assert found.unreadable == 1


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": "archonctl.transaction/1"}', "\0" * 100])
def test_a_change_file_that_is_not_ours_stops_everything_by_name(tmp_path: Path, text: str) -> None:
    simd = start_point(tmp_path)
    (simd.installed.folder / transaction.FILE).write_text(text)
    with pytest.raises(ArchonError) as caught:
        do_apply(simd, "bb")
    assert caught.value.code == "state-unreadable"
    assert simd.running == digest_of("a", tmp_path)
