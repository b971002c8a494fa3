"""An end is told in words, and called out of memory only with evidence."""

from __future__ import annotations

from pathlib import Path

import pytest

from archonctl.service.exits import ExitStatus, OomWatch, kernel_log, kernel_says, memory_cgroup

KMSG = (
    "6,1,2,-;oom-kill:constraint=CONSTRAINT_NONE,task=llama-server,pid=4242,uid=0\n"
    "3,1,3,-;Out of memory: Killed process 4242 (llama-server) total-vm:1kB, anon-rss:2kB\n"
)


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (ExitStatus(0, None), "exit 0"),
        (ExitStatus(1, None), "exit 1"),
        (ExitStatus(None, 9), "killed by signal 9 (SIGKILL)"),
        (ExitStatus(None, 4), "killed by signal 4 (SIGILL)"),
        (ExitStatus(137, None), "exit 137 (what a shell returns after signal 9, SIGKILL)"),
        (ExitStatus(127, None), "exit 127 (what a shell or loader returns when a program or library is not found)"),
        (ExitStatus(200, None), "exit 200"),
        (ExitStatus(None, 9, "x"), "killed by signal 9 (SIGKILL), out of memory: x"),
        (ExitStatus(None, None), "ended, with a status that nobody could collect"),
    ],
)
def test_words(status: ExitStatus, words: str) -> None:
    assert status.words == words


def layout(root: Path, kills: int, cgroup_kills: int, version: int = 2) -> None:
    proc, cgroup = root / "proc", root / "cg"
    (proc / "7").mkdir(parents=True, exist_ok=True)
    (proc / "7" / "cgroup").write_text("0::/box\n" if version == 2 else "5:cpu,memory:/box\n0::/other\n")
    (proc / "vmstat").write_text(f"nr_free_pages 1\noom_kill {kills}\n")
    folder = cgroup / "box" if version == 2 else cgroup / "memory" / "box"
    folder.mkdir(parents=True, exist_ok=True)
    name = "memory.events" if version == 2 else "memory.oom_control"
    (folder / name).write_text(f"oom 3\noom_kill {cgroup_kills}\n")


@pytest.mark.parametrize("version", [1, 2])
def test_a_kill_that_the_cgroup_counted_is_evidence(tmp_path: Path, version: int) -> None:
    layout(tmp_path, 5, 1, version)
    watch = OomWatch.begin(7, tmp_path / "proc", tmp_path / "cg")
    layout(tmp_path, 6, 2, version)
    assert "counted 1 oom_kill" in watch.evidence(4242, tmp_path / "proc", lambda: "")


def test_a_kill_that_the_kernel_log_names_is_evidence(tmp_path: Path) -> None:
    layout(tmp_path, 5, 1)
    watch = OomWatch.begin(7, tmp_path / "proc", tmp_path / "cg")
    layout(tmp_path, 6, 1)
    assert "Killed process 4242 (llama-server)" in watch.evidence(4242, tmp_path / "proc", lambda: KMSG)
    assert watch.evidence(42, tmp_path / "proc", lambda: KMSG) == ""


def test_an_old_kernel_line_for_the_same_number_is_no_evidence(tmp_path: Path) -> None:
    layout(tmp_path, 5, 1)
    watch = OomWatch.begin(7, tmp_path / "proc", tmp_path / "cg")
    assert watch.evidence(4242, tmp_path / "proc", lambda: KMSG) == ""


def test_nothing_known_is_no_evidence(tmp_path: Path) -> None:
    watch = OomWatch.begin(7, tmp_path, tmp_path)
    assert memory_cgroup(7, tmp_path, tmp_path) is None
    assert watch.evidence(7, tmp_path, lambda: "") == ""
    assert kernel_says(7, "") == ""
    assert kernel_log(tmp_path / "none") == ""
    assert kernel_log(tmp_path) == ""


def test_the_real_kernel_is_asked_without_harm() -> None:
    assert OomWatch.begin().evidence(1) == ""
    kernel_log()
