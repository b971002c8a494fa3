"""An engine is started clean and stopped whole, whatever happens to those who started it."""

from __future__ import annotations

import os
import pwd
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from archonctl.errors import HostRefusal
from archonctl.service import procfs
from archonctl.service.process import EngineProcess, StartSpec
from support.engines import FAKE_ENGINE, Launch, Mark, wait_for


def shell(script: str) -> tuple[str, ...]:
    return ("/bin/sh", "-c", script)


def test_exit_code_and_output_of_both_streams_are_kept(launch: Launch, tmp_path: Path) -> None:
    process = launch(argv=shell("echo out; echo err >&2; exit 3"))
    status = process.wait(20)
    assert status is not None
    assert (status.code, status.words) == (3, "exit 3")
    assert (tmp_path / "boot.log").read_text() == "out\nerr\n"
    assert process.stop() == status


def test_the_log_is_readable_by_its_owner_only(launch: Launch, tmp_path: Path) -> None:
    launch(argv=shell("true"))
    assert (tmp_path / "boot.log").stat().st_mode & 0o777 == 0o600


def test_a_signal_is_named(launch: Launch) -> None:
    status = launch(argv=shell("kill -SEGV $$")).wait(20)
    assert status is not None
    assert status.words == "killed by signal 11 (SIGSEGV)"


def test_a_kill_without_evidence_is_not_called_out_of_memory(launch: Launch) -> None:
    status = launch("killed").wait(20)
    assert status is not None
    assert status.words == "killed by signal 9 (SIGKILL)"


def test_the_environment_is_exactly_the_given_one(
    launch: Launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLAMA_ARG_CTX_SIZE", "1")
    launch(argv=(sys.executable, "-I", "-S", "-c", "import os; print(sorted(os.environ))")).wait(20)
    assert "LLAMA_ARG" not in (tmp_path / "boot.log").read_text()
    assert "ARCHON_TEST_MARK" in (tmp_path / "boot.log").read_text()


def test_no_shell_sees_the_arguments(launch: Launch, tmp_path: Path) -> None:
    hostile = "$(touch x); `id` * \" ' \\ \n ünï\udcff"
    launch(argv=(sys.executable, "-I", "-S", "-c", "import sys; print(ascii(sys.argv[1]))", hostile)).wait(20)
    assert (tmp_path / "boot.log").read_text().strip() == ascii(hostile)


def test_standard_input_is_empty_and_no_descriptor_of_ours_leaks(launch: Launch, tmp_path: Path) -> None:
    script = "import os, sys; print(repr(sys.stdin.read()), sorted(int(n) for n in os.listdir('/proc/self/fd'))[:-1])"
    launch(argv=(sys.executable, "-I", "-S", "-c", script)).wait(20)
    assert (tmp_path / "boot.log").read_text().strip() == "'' [0, 1, 2]"


def test_signals_are_not_ignored_or_blocked_in_the_engine(launch: Launch, tmp_path: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as under nohup
    try:
        launch(argv=shell("grep -E '^Sig(Ign|Blk)' /proc/self/status")).wait(20)
    finally:
        signal.signal(signal.SIGHUP, before)
    masks = [int(line.split()[1], 16) for line in (tmp_path / "boot.log").read_text().splitlines()]
    assert masks == [0, 0]


def test_stop_ends_descendants_that_left_the_session(launch: Launch, mark: Mark, free_port: int) -> None:
    process = launch("family", "--port", str(free_port), grace_s=1.0)
    wait_for(lambda: len(mark.pids()) == 3)
    process.stop()
    assert mark.pids() == []


def test_stop_kills_what_ignores_sigterm_after_the_grace(launch: Launch, mark: Mark, tmp_path: Path) -> None:
    process = launch("ignore-term", grace_s=0.2)
    wait_for(lambda: "ignoring" in (tmp_path / "boot.log").read_text())
    assert process.stop().signal == signal.SIGKILL
    assert mark.pids() == []


def test_stop_reaches_a_stopped_process(launch: Launch, mark: Mark) -> None:
    process = launch("hang", grace_s=15.0)
    os.kill(process.pid, signal.SIGSTOP)
    assert process.stop().signal == signal.SIGTERM
    assert mark.pids() == []


def test_hurry_cuts_the_grace_short(launch: Launch, mark: Mark, tmp_path: Path) -> None:
    process = launch("ignore-term", grace_s=1000.0)
    wait_for(lambda: "ignoring" in (tmp_path / "boot.log").read_text())
    before = signal.signal(signal.SIGALRM, lambda *_: process.hurry())
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        assert process.stop().signal == signal.SIGKILL
    finally:
        signal.signal(signal.SIGALRM, before)


def test_an_engine_that_dies_takes_its_workers_with_it(launch: Launch, mark: Mark, free_port: int) -> None:
    process = launch("family", "--port", str(free_port))
    wait_for(lambda: len(mark.pids()) == 3)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait(20) is not None
    assert mark.wait_until_gone() == []


def test_killing_the_guard_ends_the_engine(launch: Launch, mark: Mark) -> None:
    process = launch("hang")
    os.kill(process._guard.pid, signal.SIGKILL)
    wait_for(process.poll)
    assert process.wait(1) is not None
    assert process.wait(1).words == "ended, with a status that nobody could collect"  # type: ignore[union-attr]
    assert mark.wait_until_gone() == []


SUPERVISOR = """
    import sys, time
    from pathlib import Path
    from archonctl.service.process import EngineProcess, StartSpec
    mark, log, *argv = sys.argv[1:]
    spec = StartSpec(tuple(argv), argv[0], {"ARCHON_TEST_MARK": mark}, Path(log), grace_s=0.5, detach=%s)
    process = EngineProcess.launch(spec)
    print(process.pid, flush=True)
    %s
"""


def supervise(
    mark: Mark, log: Path, *words: str, detach: bool = False, then: str = "time.sleep(1000)"
) -> subprocess.Popen[str]:
    argv = (sys.executable, "-I", "-S", str(FAKE_ENGINE), *words)
    script = textwrap.dedent(SUPERVISOR) % (detach, then)
    return subprocess.Popen(
        [sys.executable, "-c", script, mark.value, log, *argv],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.mark.parametrize("behaviour", ["hang", "family", "ignore-term", "flood"])
@pytest.mark.parametrize("detach", [False, True])
def test_kill_9_of_the_supervisor_leaves_nothing(
    mark: Mark, tmp_path: Path, behaviour: str, detach: bool, free_port: int
) -> None:
    with supervise(mark, tmp_path / "boot.log", behaviour, "--port", str(free_port), detach=detach) as supervisor:
        assert supervisor.stdout is not None
        supervisor.stdout.readline()
        wait_for(lambda: behaviour != "family" or len(mark.pids()) == 3)
        supervisor.kill()
    assert mark.wait_until_gone() == []


def test_kill_9_of_the_supervisor_at_any_moment_leaves_nothing(mark: Mark, tmp_path: Path) -> None:
    for delay_s in (0.0, 0.02, 0.04, 0.06, 0.08, 0.1, 0.12, 0.15):
        with supervise(mark, tmp_path / "boot.log", "hang") as supervisor:
            time.sleep(0.05 + delay_s)
            supervisor.kill()
        assert mark.wait_until_gone() == []


def test_a_released_engine_outlives_us_and_its_guard(mark: Mark, tmp_path: Path) -> None:
    with supervise(mark, tmp_path / "boot.log", "hang", detach=True, then="process.release()") as supervisor:
        assert supervisor.stdout is not None
        pid = int(supervisor.stdout.readline())
        assert supervisor.wait(20) == 0
    time.sleep(0.5)
    assert mark.pids() == [pid]
    assert [s.pid for s in procfs.all_stats() if s.ppid == os.getpid() and s.pid == pid] == []


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="taking on another user needs root")


@needs_root
def test_an_engine_runs_as_the_declared_user_with_its_groups(launch: Launch, tmp_path: Path) -> None:
    launch(argv=shell("id -u; id -g; id -G"), user="nobody").wait(20)
    entry = pwd.getpwnam("nobody")
    lines = (tmp_path / "boot.log").read_text().split()
    assert lines == [str(entry.pw_uid), str(entry.pw_gid), str(entry.pw_gid)]


@needs_root
def test_an_engine_of_another_user_dies_with_its_guard_too(launch: Launch, mark: Mark) -> None:
    process = launch(argv=("/bin/sleep", "1000"), user="nobody")  # taking on a user clears the parent-death signal
    os.kill(process._guard.pid, signal.SIGKILL)
    assert mark.wait_until_gone() == []


def test_a_user_that_is_missing_is_refused(launch: Launch) -> None:
    with pytest.raises(HostRefusal) as caught:
        launch("hang", user="no-such-user-here")
    assert caught.value.code == "user-missing"


def test_an_attached_engine_cannot_be_released(launch: Launch) -> None:
    with pytest.raises(ValueError, match="detach"):
        launch("hang").release()


def test_signals_of_the_terminal_do_not_reach_engine_or_guard(launch: Launch) -> None:
    process = launch("hang")
    assert os.getsid(process.pid) == process.pid
    assert os.getpgid(process._guard.pid) != os.getpgid(0)


@pytest.mark.parametrize(
    ("name", "content", "mode", "words"),
    [
        ("gone", None, 0, "does not exist"),
        ("text", b"hello", 0o755, "format"),
        ("mode", b"#!/bin/sh\n", 0o644, "permission"),
        ("interp", b"#!/no/such/interpreter\n", 0o755, "does not exist"),
    ],
)
def test_what_the_kernel_will_not_run_is_refused(
    tmp_path: Path, name: str, content: bytes | None, mode: int, words: str
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
        path.chmod(mode)
    with pytest.raises(HostRefusal, match=words) as caught:
        EngineProcess.launch(StartSpec((name,), str(path), {}, tmp_path / "boot.log"))
    assert caught.value.code == "engine-not-startable"


def test_a_log_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc/hostname")
    for path in (tmp_path, tmp_path / "no" / "log", tmp_path / "link"):
        with pytest.raises(HostRefusal) as caught:
            EngineProcess.launch(StartSpec(("true",), "/bin/true", {}, path))
        assert caught.value.code == "log-unwritable"


def test_a_flood_leaves_the_log_bounded_with_its_head_intact(launch: Launch, tmp_path: Path, free_port: int) -> None:
    log = tmp_path / "boot.log"
    cap, head = 8 << 20, 1 << 20
    process = launch("flood", "--port", str(free_port), log_cap_bytes=cap, log_head_bytes=head)
    wait_for(lambda: log.stat().st_size > head)
    beginning = log.read_bytes()[:4096]
    sizes = [0]

    def was_cut() -> bool:
        sizes.append(log.stat().st_size)
        return sizes[-1] < sizes[-2]

    wait_for(was_cut)
    process.stop()
    assert log.read_bytes()[:4096] == beginning
    assert (tmp_path / "boot.log.1").exists()


def test_an_engine_that_closes_its_outputs_runs_on(launch: Launch, free_port: int) -> None:
    process = launch("closed", "--port", str(free_port))
    time.sleep(0.3)
    assert process.poll() is None
