"""Processes are read as the kernel tells of them, also with hostile names and vanished files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from archonctl.service import procfs
from support.engines import Launch, Mark, wait_for


def fake(root: Path, pid: int, name: str, ppid: int, session: int, state: str = "S") -> None:
    folder = root / str(pid)
    folder.mkdir()
    rest = " ".join(str(n) for n in range(7, 23))
    (folder / "stat").write_text(f"{pid} ({name}) {state} {ppid} {ppid} {session} {rest}\n")


def test_a_name_with_parentheses_and_newlines_does_not_confuse(tmp_path: Path) -> None:
    fake(tmp_path, 5, "a) R 1 1 (b\n", 2, 3)
    found = procfs.stat(5, tmp_path)
    assert found is not None
    assert (found.ppid, found.session, found.state) == (2, 3, "S")


def test_a_tree_is_descendants_and_session_without_zombies(tmp_path: Path) -> None:
    fake(tmp_path, 10, "engine", 1, 10)
    fake(tmp_path, 11, "worker", 10, 11)
    fake(tmp_path, 12, "below", 11, 12)
    fake(tmp_path, 13, "orphan", 1, 10)
    fake(tmp_path, 14, "dead", 10, 10, "Z")
    fake(tmp_path, 20, "stranger", 1, 20)
    (tmp_path / "30").mkdir()
    (tmp_path / "30" / "stat").write_text("30 (half")
    assert procfs.tree(10, tmp_path) == [10, 11, 12, 13]
    assert procfs.tree(99, tmp_path) == []


def test_this_process_is_itself() -> None:
    me = procfs.identity(os.getpid())
    assert me is not None
    assert procfs.is_alive(me)
    assert not procfs.is_alive(procfs.Identity(me.pid, me.start_ticks + 1, me.boot_id))
    usage = procfs.usage([os.getpid()])
    assert usage.rss_bytes is not None
    assert usage.rss_bytes > 1 << 20


def test_usage_of_nobody_is_unknown_not_zero() -> None:
    assert procfs.usage([]) == procfs.Usage(None, None)
    assert procfs.usage([2**22 - 1]) == procfs.Usage(None, None)


def test_a_command_line_is_made_printable_and_short() -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(99)", "\x1b[31m\n", "x" * 1000]) as child:
        try:
            wait_for(lambda: "import" in procfs.command(child.pid))
            text = procfs.command(child.pid)
        finally:
            child.kill()
    assert "\x1b" not in text
    assert "\n" not in text
    assert len(text) == 160
    assert procfs.command(2**22 - 1) == ""


def test_a_listener_is_found_with_its_command(launch: Launch, mark: Mark, free_port: int) -> None:
    assert procfs.listeners(free_port) == []
    process = launch("serve", "--port", str(free_port))
    wait_for(lambda: procfs.listeners(free_port))
    (found,) = procfs.listeners(free_port)
    assert found.pid == process.pid
    assert "fake_engine" in str(found)


def test_a_listener_s_secrets_are_not_shown(launch: Launch, free_port: int) -> None:
    script = f"import socket, time; s = socket.create_server(('127.0.0.1', {free_port})); time.sleep(1000)"
    launch(argv=(sys.executable, "-I", "-S", "-c", script, "--api-key", "hunter2", "--hf-token=hunter3", "end"))
    wait_for(lambda: procfs.listeners(free_port))
    assert "hunter" not in str(procfs.listeners(free_port)[0])


def test_a_listener_that_may_not_be_looked_into_is_told_by_its_uid(tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    line = "  0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000   998 0 4711 1 0 100 0 0 10 0"
    (tmp_path / "net" / "tcp").write_text(f"  sl  local_address\n{line}\nnonsense\n")
    (found,) = procfs.listeners(8080, tmp_path)
    assert str(found) == "a process of uid 998 that this user may not look into"
    assert procfs.listeners(8081, tmp_path) == []
