"""What runs is written whole, believed only with the kernel's word, and stopped only if it is the very process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from archonctl.errors import HostRefusal, UsageError
from archonctl.service import procfs, state
from archonctl.service.state import EndpointState, Running, argv_digest, state_dir, stop_process
from support.engines import Launch, Mark, wait_for


def running(pid: int, log: Path = Path("/x/boot.log")) -> Running:
    who = procfs.identity(pid)
    assert who is not None
    digest = argv_digest(["a", "b"])
    return Running(
        "tiny",
        "detached",
        pid,
        who.start_ticks,
        who.boot_id,
        digest,
        "127.0.0.1",
        1,
        str(log),
        "",
        "/e.toml",
        time.time(),
    )


@pytest.fixture
def place(tmp_path: Path) -> EndpointState:
    found = EndpointState(tmp_path, "tiny")
    found.create()
    return found


def test_nothing_recorded_is_nothing_running(place: EndpointState) -> None:
    assert place.running() is None


def test_a_live_process_is_found_again(place: EndpointState) -> None:
    me = running(os.getpid())
    place.write(me)
    assert place.running() == me
    place.clear()
    place.clear()
    assert place.running() is None


@pytest.mark.parametrize("change", [{"start_ticks": 1}, {"boot_id": "another boot"}, {"pid": 2**22 - 1}])
def test_a_number_that_another_process_got_is_not_believed(place: EndpointState, change: dict[str, int]) -> None:
    place.write(replace(running(os.getpid()), **change))  # type: ignore[arg-type]
    assert place.recorded() is not None
    assert place.running() is None


def test_a_zombie_does_not_run(place: EndpointState) -> None:
    with subprocess.Popen(["sleep", "100"]) as child:
        place.write(running(child.pid))
        child.kill()
        wait_for(lambda: (found := procfs.stat(child.pid)) and found.state == "Z")
        assert place.running() is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "null",
        "[]",
        "{}",
        '{"schema": "archonctl.running/1"}',
        "\0" * 100,
        "[" * 100_000,
        '{"schema": "other/1"}',
    ],
)
def test_a_file_of_another_kind_is_told_and_not_guessed_at(place: EndpointState, text: str) -> None:
    (place.folder / "running.json").write_text(text)
    with pytest.raises(HostRefusal) as caught:
        place.running()
    assert caught.value.code == "state-unreadable"


@pytest.mark.parametrize("change", [{"pid": "1"}, {"pid": -1}, {"pid": 1}, {"pid": 0}, {"pid": True}, {"port": None}])
def test_a_pid_that_would_signal_others_is_refused(place: EndpointState, change: dict[str, object]) -> None:
    place.write(running(os.getpid()))
    path = place.folder / "running.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(HostRefusal) as caught:
        place.running()
    assert caught.value.code == "state-unreadable"


def test_a_file_with_more_keys_than_we_know_is_read(place: EndpointState) -> None:
    place.write(running(os.getpid()))
    path = place.folder / "running.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"later": 1}))
    assert place.running() is not None


def test_two_holders_of_one_endpoint_exclude_each_other(place: EndpointState) -> None:
    with place.lock(), pytest.raises(HostRefusal, match=rf"pid {os.getpid()}\) is starting") as caught, place.lock():
        pass
    assert caught.value.code == "up-in-progress"
    with place.lock():
        pass


def test_the_lock_of_a_killed_holder_is_free(place: EndpointState) -> None:
    script = (
        "import time; from pathlib import Path; from archonctl.service.state import EndpointState\n"
        f"with EndpointState(Path({str(place.folder.parent)!r}), 'tiny').lock():\n"
        "    print('held', flush=True); time.sleep(99)"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout is not None
            holder.stdout.readline()
            with pytest.raises(HostRefusal), place.lock():
                pass
        finally:
            holder.kill()
    with place.lock():
        pass


def test_an_interrupted_write_leaves_the_old_content(place: EndpointState, monkeypatch: pytest.MonkeyPatch) -> None:
    me = running(os.getpid())
    place.write(me)
    for call in ("write", "fsync"):
        with monkeypatch.context() as patch:
            patch.setattr(state.os, call, lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
            with pytest.raises(HostRefusal, match="No space left") as caught:
                place.write(replace(me, port=2))
            assert caught.value.code == "state-unwritable"
        assert place.running() == me
    assert sorted(p.name for p in place.folder.iterdir()) == ["running.json"]


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "-x", "a\nb", "x" * 101, ".hidden", "ü"])
def test_a_name_that_is_no_plain_file_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError) as caught:
        EndpointState(tmp_path, name)
    assert caught.value.code == "endpoint-name"


def test_a_state_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(HostRefusal) as caught:
        EndpointState(tmp_path / "file", "tiny").create()
    assert caught.value.code == "state-unwritable"


def test_where_state_is_kept(tmp_path: Path) -> None:
    assert state_dir({"ARCHON_STATE_DIR": "/s"}, 0) == Path("/s")
    assert state_dir({"ARCHON_STATE_DIR": "s"}, 1000) == Path.cwd() / "s"
    assert state_dir({}, 0, tmp_path / "archon") == tmp_path / "archon"
    assert state_dir({"HOME": "/home/a"}, 0, tmp_path / "no" / "archon") == Path("/home/a/.local/state/archonctl")
    assert state_dir({"XDG_STATE_HOME": "/x", "HOME": "/h"}, 1000) == Path("/x/archonctl")
    assert state_dir({"XDG_STATE_HOME": "relative", "HOME": "/h"}, 1000) == Path("/h/.local/state/archonctl")


def test_a_detached_engine_is_stopped_with_its_family(launch: Launch, mark: Mark, free_port: int) -> None:
    process = launch("family", "--port", str(free_port), detach=True)
    wait_for(lambda: len(mark.pids()) == 3)
    record = running(process.pid)
    process.release()
    assert stop_process(record, 1.0)
    # What left both session and parent cannot be told from a stranger without a guard or a control group.
    assert process.pid not in mark.pids()


def test_a_detached_engine_that_ignores_sigterm_is_killed(launch: Launch, mark: Mark, tmp_path: Path) -> None:
    process = launch("ignore-term", detach=True)
    wait_for(lambda: "ignoring" in (tmp_path / "boot.log").read_text())
    record = running(process.pid)
    process.release()
    assert stop_process(record, 0.2)
    assert mark.wait_until_gone() == []


def test_a_stranger_with_the_same_number_is_left_alone(launch: Launch) -> None:
    process = launch("hang")
    assert not stop_process(replace(running(process.pid), start_ticks=1), 0.1)
    assert process.poll() is None
