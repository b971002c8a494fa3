"""The whole spine on a real vLLM, on a CPU: plan, release, start, boot ledger, full-height requests, verdict.

vLLM with its torch takes 3.5 GB and minutes to install, so that CI has none of it: there its boot logs are checked
(``tests/golden/boots``). ``ARCHON_TEST_VLLM=/path/to/venv/bin/vllm`` runs this file (about 40 s a test).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import pytest

from archonctl.service import procfs
from support.engines import wait_for
from support.tiny_hf import write_tiny_hf

pytestmark = [pytest.mark.engine, pytest.mark.optional, pytest.mark.timeout(600)]

DECLARATION = """
[contract]
seqs = 3
len = 2048
kv_dtype = "auto"
[engine]
kind = "vllm"
version = "0.32.0"
binary = "{binary}"
[engine.knobs]
enforce-eager = true
{knobs}
[engine.env]
VLLM_CPU_KVCACHE_SPACE = "1"
HF_HUB_OFFLINE = "1"
[model]
path = "{model}"
served_name = "tiny"
[host]
detect = true
[service]
listen = "127.0.0.1:{port}"
load_timeout_s = 500
"""

Declare = Callable[..., Path]


class Result(Protocol):
    """What the command answered."""

    code: int
    stdout: str
    stderr: str


Archonctl = Callable[..., Result]


@pytest.fixture(scope="session")
def vllm() -> Path:
    """The program of a vLLM that is installed (``ARCHON_TEST_VLLM``)."""
    named = os.environ.get("ARCHON_TEST_VLLM", "")
    if not named or not os.access(named, os.X_OK):
        pytest.skip("no vLLM: set ARCHON_TEST_VLLM to the vllm of a virtual environment")
    return Path(named).absolute()


@pytest.fixture
def declare(tmp_path: Path, vllm: Path, free_port: int) -> Declare:
    """``declare(knobs)`` writes a declaration over a model of 2 MiB."""

    def write(knobs: str = "") -> Path:
        model = write_tiny_hf(tmp_path / "model", "qwen3", weights=True)
        path = tmp_path / "small.toml"
        path.write_text(DECLARATION.format(binary=vllm, knobs=knobs, model=model, port=free_port))
        return path

    return write


@pytest.fixture
def archonctl(run_cli: Archonctl, tmp_path: Path) -> Archonctl:
    """The command with a state folder of its own."""

    def run(*words: str | Path) -> Result:
        return run_cli(*words, env={"ARCHON_STATE_DIR": str(tmp_path / "state")}, timeout=550)

    return run


def engines_of(port: int) -> list[int]:
    return [s.pid for s in procfs.all_stats() if f"--port {port}" in procfs.command(s.pid, limit=4000)]


def test_the_contract_holds_and_nothing_is_left(archonctl: Archonctl, declare: Declare, free_port: int) -> None:
    done = archonctl("up", declare(), "--once", "--foreground", "--json")
    assert done.code == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["verdict"] == "holds"
    assert answer["ledger"]["essentials"]["kv_tokens"]["value"] == 524_288

    assert not engines_of(free_port)


def test_a_pool_that_is_too_small_is_found_by_the_log_the_metrics_and_the_requests(
    archonctl: Archonctl, declare: Declare
) -> None:
    done = archonctl("up", declare("num-gpu-blocks-override = 30"), "--once", "--foreground", "--force", "--json")
    assert done.code == 1, done.stderr
    answer = json.loads(done.stdout)
    codes = {leg["id"]: leg["code"] for leg in answer["probe"]["legs"] if leg["status"] == "fail"}
    assert answer["verdict"] == "broken"
    assert codes == {"ledger": "kv-tokens-short", "engine-report": "kv-tokens-short", "capacity": "preempted"}


def test_a_boot_that_vllm_refuses_is_told_with_its_cause(archonctl: Archonctl, declare: Declare) -> None:
    done = archonctl("up", declare("num-gpu-blocks-override = 10"), "--once", "--foreground", "--force")
    assert done.code == 1
    assert "the log names kv-too-small" in done.stderr


def test_an_interrupt_while_it_loads_orphans_no_worker(declare: Declare, tmp_path: Path, free_port: int) -> None:
    command = [Path(sys.executable).with_name("archonctl"), "up", declare(), "--once", "--foreground"]
    with subprocess.Popen(
        command,
        env={**os.environ, "ARCHON_STATE_DIR": str(tmp_path / "state")},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        log = tmp_path / "state" / "small" / "boot.log"
        wait_for(lambda: log.exists() and "EngineCore pid=" in log.read_text("utf-8", "replace"), 300)
        workers = {pid for engine in engines_of(free_port) for pid in procfs.tree(engine)}
        process.send_signal(signal.SIGINT)
        assert process.wait(120) != 0
    assert len(workers) > 1
    wait_for(lambda: not workers & {s.pid for s in procfs.all_stats()}, 60)
