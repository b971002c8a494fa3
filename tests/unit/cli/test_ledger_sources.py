"""``archonctl ledger`` from stdin, a container, a log that is being written; and what it says where there is none."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import pytest

CLI = Path(sys.executable).with_name("archonctl")
KV = "GPU KV cache size: 12,345 tokens"
READY = "INFO:     Application startup complete."
BOOT = f"vLLM API server version 0.11.0\n{KV}\nMaximum concurrency for 1,000 tokens per request: 12.34x\n{READY}\n"

RUNTIME = """#!/bin/sh
case "$1" in
  inspect) [ "$NAME_OF_NOBODY" ] && { echo "Error: no such container" >&2; exit 1; }
           echo "2026-11-30T12:00:00.123456789Z" ;;
  logs) echo "$@" > "$ASKED"
        echo "%s" >&2
        echo "Maximum concurrency for 1,000 tokens per request: 12.34x"
        echo "%s"
        case " $* " in *" --follow "*) sleep 60 ;; esac
        exit "${LOGS_EXIT:-0}" ;;
esac
"""


class Result(Protocol):
    """What the command answered."""

    code: int
    stdout: str
    stderr: str


RunCli = Callable[..., Result]


@pytest.fixture
def runtime(tmp_path: Path) -> dict[str, str]:
    """An environment in which ``docker`` is a small script, and podman is not installed."""
    program = tmp_path / "bin" / "docker"
    program.parent.mkdir()
    program.write_text(RUNTIME % (KV, READY))
    program.chmod(0o755)
    for name in ("sh", "sleep", "env"):
        (program.parent / name).symlink_to(f"/bin/{name}")
    return {"PATH": str(program.parent), "ASKED": str(tmp_path / "asked")}


def value(done: Result, name: str) -> object:
    return json.loads(done.stdout)["essentials"][name]["value"]


def test_a_container_is_asked_for_its_last_start_alone(run_cli: RunCli, runtime: dict[str, str]) -> None:
    done = run_cli("ledger", "--container", "engine", "--json", env=runtime)
    assert done.code == 0, done.stderr
    assert value(done, "kv_tokens") == 12345
    assert Path(runtime["ASKED"]).read_text().split() == ["logs", "--since", "2026-11-30T12:00:00.123456789Z", "engine"]


def test_a_container_is_followed_until_it_serves(run_cli: RunCli, runtime: dict[str, str]) -> None:
    done = run_cli("ledger", "--container", "engine", "--follow", "--json", env=runtime)
    assert done.code == 0, done.stderr
    assert json.loads(done.stdout)["ready"]
    assert "kv_tokens 12,345 tokens" in done.stderr


def test_a_container_that_is_not_there_is_named(run_cli: RunCli, runtime: dict[str, str]) -> None:
    done = run_cli("ledger", "--container", "engine", env=runtime | {"NAME_OF_NOBODY": "1"})
    assert done.code == 5
    assert "container-unknown" in done.stderr
    assert "no such container" in done.stderr


def test_a_log_that_ended_with_an_error_is_not_taken_for_whole(run_cli: RunCli, runtime: dict[str, str]) -> None:
    done = run_cli("ledger", "--container", "engine", env=runtime | {"LOGS_EXIT": "3"})
    assert done.code == 5
    assert "log-unreadable" in done.stderr
    assert "12,345" not in done.stdout


def test_an_option_is_no_name_of_a_container(run_cli: RunCli, runtime: dict[str, str]) -> None:
    assert run_cli("ledger", "--container=--help", env=runtime).code == 2


@pytest.mark.parametrize("words", [(), ("a", "b"), ("a", "--unit", "x"), ("--unit", "x", "--container", "y")])
def test_one_log_at_a_time(run_cli: RunCli, words: tuple[str, ...]) -> None:
    done = run_cli("ledger", *words)
    assert done.code == 2
    assert "one-log" in done.stderr


def test_a_unit_where_no_systemd_runs_is_said_so(run_cli: RunCli, tmp_path: Path) -> None:
    done = run_cli("ledger", "--unit", "engine", env={"PATH": str(tmp_path)})
    assert done.code == 5
    assert "systemctl" in done.stderr


def test_a_pipe_is_followed_until_the_engine_serves(tmp_path: Path) -> None:
    with subprocess.Popen(
        [CLI, "ledger", "--follow", "-", "--json"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        for line in BOOT.splitlines(keepends=True):
            process.stdin.write(line.encode())
            process.stdin.flush()
        # stdin stays open, as that of a log that goes on for ever
        assert process.wait(120) == 0
        assert process.stdout is not None
        assert json.load(process.stdout)["ready_line"] == 4


def test_a_file_is_followed_while_it_is_written_cut_and_replaced(tmp_path: Path) -> None:
    log = tmp_path / "boot.log"
    log.write_text("x" * 2000 + "\n")
    words = [CLI, "ledger", "--follow", str(log), "--json", "--timeout", "200"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ}) as process:
        time.sleep(1)
        log.write_text("cut short\n")
        time.sleep(0.5)
        new = tmp_path / "new.log"
        new.write_text(BOOT[:60])
        new.replace(log)
        time.sleep(0.5)
        with log.open("a") as more:
            more.write(BOOT[60:])
        assert process.wait(120) == 0
        assert process.stdout is not None
        read = json.load(process.stdout)
    assert read["ready"]
    assert read["essentials"]["kv_tokens"]["value"] == 12345


def test_a_log_in_which_nothing_happens_is_no_evidence_when_time_is_up(run_cli: RunCli, tmp_path: Path) -> None:
    log = tmp_path / "boot.log"
    log.write_text("nothing of interest\n")
    done = run_cli("ledger", "--follow", log, "--timeout", "0.5")
    assert done.code == 3
    assert run_cli("ledger", "--follow", log, "--timeout", "0").code == 2
    assert run_cli("ledger", "--follow", tmp_path / "none").code == 2


def test_check_takes_no_other_log(run_cli: RunCli, tmp_path: Path) -> None:
    assert run_cli("ledger", "check", tmp_path / "x", "--unit", "y").code == 2


@pytest.mark.parametrize(
    ("printed", "wanted"),
    [
        ("2026-11-30T12:00:00.123456789Z\n", "2026-11-30T12:00:00.123456789Z"),
        ("2026-11-30 12:00:00.123456789 +0100 CET\n", "2026-11-30T12:00:00.123456789+01:00"),
        ("0001-01-01T00:00:00Z\n", ""),
        ("0001-01-01 00:00:00 +0000 UTC", ""),
        ("", ""),
    ],
)
def test_the_start_of_a_container_is_understood_from_both_runtimes(printed: str, wanted: str) -> None:
    from archonctl.service.ledger_source import _since

    assert _since(printed) == wanted
