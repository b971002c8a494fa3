"""Modules of the collection as a host runs them: what a lease keeps off, and when a declaration comes to its place."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Module = Callable[..., dict[str, Any]]
COLLECTIONS = Path("fleet/ansible")
MODULES = COLLECTIONS / "ansible_collections/archonctl/endpoints/plugins/modules"
HOST = """#!/bin/sh
echo "$@" >> {folder}/asked
{act}
"""
"""In place of the host's archonctl."""


def start(repository: Path, name: str, arguments: dict[str, object], check: bool = False) -> subprocess.Popen[str]:
    environ = os.environ | {"PYTHONPATH": str(repository / COLLECTIONS)}
    value = json.dumps({"ANSIBLE_MODULE_ARGS": {**arguments, "_ansible_check_mode": check}})
    program = [sys.executable, repository / MODULES / f"{name}.py"]
    process = subprocess.Popen(
        program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ
    )
    assert process.stdin is not None
    process.stdin.write(value)
    process.stdin.close()
    process.stdin = None
    return process


@pytest.fixture
def module(repository: Path) -> Module:
    def run(name: str, check: bool = False, **arguments: object) -> dict[str, Any]:
        process = start(repository, name, arguments, check)
        out, err = process.communicate(timeout=300)
        assert out, err
        found: dict[str, Any] = json.loads(out)
        return found

    return run


def lease(module: Module, folder: Path, rollout: str, operator: str = "alice@one", **more: Any) -> dict[str, Any]:
    return module("archon_lease", rollout=rollout, operator=operator, folder=str(folder / "run"), **more)


def test_a_lease_keeps_off_everybody_but_who_knows_that_its_rollout_is_gone(module: Module, tmp_path: Path) -> None:
    assert "failed" not in lease(module, tmp_path, "first", check=True)
    assert not (tmp_path / "run").exists()
    assert "failed" not in lease(module, tmp_path, "first")
    same_name = lease(module, tmp_path, "second")  # two machines may call their operators alike
    assert (same_name["failed"], same_name["exit_code"], same_name["held_by"]) == (True, 5, "alice@one")
    assert all(word in same_name["msg"] for word in ("fleet-busy", "since 2", "until 2", "--take-over"))
    assert lease(module, tmp_path, "second", check=True)["failed"]
    lease(module, tmp_path, "second", state="released")  # not its own
    assert "failed" not in lease(module, tmp_path, "first")
    assert "failed" not in lease(module, tmp_path, "second", gone=["another", "first"])
    assert lease(module, tmp_path, "first")["held_by"] == "alice@one"  # as its next host's turn comes
    assert "failed" not in lease(module, tmp_path, "third", "bob@two", take_over=True)
    lease(module, tmp_path, "third", state="released")
    assert not (tmp_path / "run" / ".lease.json").exists()


@pytest.mark.parametrize("text", ["", "[]", '{"until": "x"}', '{"until": 1, "rollout": "a"}', "\0", "[" * 100_000])
def test_a_lease_that_is_over_or_cannot_be_read_keeps_nobody_off(module: Module, tmp_path: Path, text: str) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".lease.json").write_text(text)
    assert "failed" not in lease(module, tmp_path, "first")


@pytest.fixture
def host(tmp_path: Path) -> dict[str, Any]:
    """Arguments of a change: a staged declaration, another one in place, and a program that says how it went."""
    (tmp_path / "staged").mkdir()
    (tmp_path / "staged" / "chat.toml").write_text("new\r\n")
    (tmp_path / "chat.toml").write_text("old\n")
    program = tmp_path / "archonctl"
    staged, place = tmp_path / "staged" / "chat.toml", tmp_path / "chat.toml"
    return {"endpoint": str(staged), "place": str(place), "executable": str(program)}


def ends(host: dict[str, Any], code: int, outcome: str, act: str = "") -> None:
    value = {"schema": "archonctl.apply/1", "endpoint": "chat", "outcome": outcome, "action": "restart"}
    program = Path(host["executable"])
    answer = f"echo '{json.dumps({**value, 'attempts': [{}]})}'; exit {code}"
    program.write_text(HOST.format(folder=program.parent, act=f"{act}\n{answer}"))
    program.chmod(0o755)


@pytest.mark.parametrize(("code", "outcome"), [(1, "failed"), (6, "rolled back"), (7, "lost"), (3, "failed")])
def test_a_declaration_that_did_not_hold_never_comes_to_its_place(
    module: Module, host: dict[str, Any], tmp_path: Path, code: int, outcome: str
) -> None:
    ends(host, code, outcome)
    assert module("archon_apply", **host)["exit_code"] == code
    assert (tmp_path / "chat.toml").read_text() == "old\n"
    (tmp_path / "chat.toml").unlink()
    assert module("archon_apply", **host)["failed"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["archonctl", "asked", "staged"]


def test_one_that_holds_comes_there_whole_and_is_judged_as_if_it_lay_there(
    module: Module, host: dict[str, Any], tmp_path: Path
) -> None:
    ends(host, 0, "applied")
    checked = module("archon_apply", check=True, **host)
    assert (checked["changed"], (tmp_path / "chat.toml").read_text()) == (True, "old\n")
    assert (checked["diff"][-1]["before"], checked["diff"][-1]["after"]) == ("old\n", "new\r\n")
    assert module("archon_apply", **host)["changed"] is True
    assert (tmp_path / "chat.toml").read_bytes() == b"new\r\n"
    assert (tmp_path / "chat.toml").stat().st_mode & 0o777 == 0o644
    assert f"--as {tmp_path / 'chat.toml'}" in (tmp_path / "asked").read_text().splitlines()[-1]
    assert not (tmp_path / ".chat.toml.next").exists()


def test_where_it_cannot_be_laid_ready_the_engine_is_not_touched(module: Module, host: dict[str, Any]) -> None:
    ends(host, 0, "applied")
    found = module("archon_apply", **{**host, "place": "/proc/no-such/chat.toml"})
    assert (found["failed"], found["exit_code"], found["error"]["code"]) == (True, 5, "state-unwritable")
    assert not Path(host["executable"]).with_name("asked").exists()


def test_a_kill_in_the_middle_leaves_what_was_there(repository: Path, host: dict[str, Any], tmp_path: Path) -> None:
    ends(host, 0, "applied", f"until [ -e {tmp_path}/go ]; do sleep 0.1; done; touch {tmp_path}/gone")
    process = start(repository, "archon_apply", host)
    try:
        until((tmp_path / "asked").exists)
        assert (tmp_path / ".chat.toml.next").read_bytes() == b"new\r\n"
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=300)
        assert (tmp_path / "chat.toml").read_text() == "old\n"
    finally:
        process.kill()
        (tmp_path / "go").touch()  # the program has a session of its own
        until((tmp_path / "gone").exists)


def until(is_so: Callable[[], bool]) -> None:
    for _ in range(3000):
        if is_so():
            return
        time.sleep(0.1)
    pytest.fail("it never came to that")
