"""The whole spine on a real vLLM, on a CPU: plan, release, start, boot ledger, full-height requests, verdict.

vLLM with its torch takes 3.5 GB and minutes to install, so that CI has none of it: there its boot logs are checked
(``tests/golden/boots``). ``ARCHON_TEST_VLLM=$(scripts/get-vllm)`` runs this file (about 40 s a test).
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import pytest

from archonctl.deployment.schema import Contract, Endpoint, ModelRef, Service
from archonctl.deployment.schema import Engine as ServedBy
from archonctl.engines.vllm.adapter import ADAPTER
from archonctl.ledger import read_ledger
from archonctl.probe.limits import Limits
from archonctl.probe.run import probe_endpoint
from archonctl.probe.values import Verdict
from archonctl.service import procfs
from support import real_vllm
from support.bounds import in_time
from support.engines import wait_for
from support.probing import leg, told
from support.tiny_hf import write_tiny_hf

pytestmark = [pytest.mark.engine, pytest.mark.optional, pytest.mark.timeout(600)]


Declare = Callable[..., Path]


class Result(Protocol):
    """What the command answered."""

    code: int
    stdout: str
    stderr: str


Archonctl = Callable[..., Result]


@pytest.fixture(scope="session")
def vllm() -> Path:
    """The program of a vLLM that is installed."""
    return real_vllm.installed()


@pytest.fixture
def declare(tmp_path: Path, vllm: Path, free_port: int) -> Declare:
    """``declare(knobs)`` writes a declaration over a model of 2 MiB."""

    def write(knobs: str = "") -> Path:
        return real_vllm.declare(tmp_path, vllm, free_port, knobs=knobs)

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


@pytest.mark.parametrize(
    ("knobs", "env", "code"),
    [
        ("", 'VLLM_CPU_KVCACHE_SPACE = "4000"', "free-memory-too-little"),
        ("tensor-parallel-size = 3", "", "argument-invalid"),
        ("max-model-len = 300000", "", "context-over-trained"),
        ('kv-cache-dtype = "int3"', "", "argument-invalid"),
        ("no-such-flag = true", "", "unknown-argument"),
    ],
)
def test_a_refusal_is_told_by_its_cause_and_in_time(
    archonctl: Archonctl, declare: Declare, vllm: Path, tmp_path: Path, knobs: str, env: str, code: str
) -> None:
    """The script in place of the engine adds what no gate would let through."""
    words = " ".join(f"--{key} {value}" for key, _, value in (line.partition(" = ") for line in knobs.splitlines()))
    script = tmp_path / "vllm"
    assigned = env.replace(" = ", "=")
    script.write_text(
        f'#!/bin/sh\n{f"export {assigned}" if env else ""}\nexec {vllm} "$@" {words.replace(" true", "")}\n'
    )
    script.chmod(0o755)
    path = declare()
    path.write_text(path.read_text().replace(f'binary = "{vllm}"', f'binary = "{script}"'))
    done = archonctl("up", path, "--once", "--foreground", "--force", "--json")
    answer = json.loads(done.stdout)
    assert (done.code, answer["error"]["code"]) == (1, "engine-exited-at-boot")
    assert f"the log names {code}" in answer["error"]["message"]
    assert 0 < float(answer["error"]["seconds"]) <= 501


QUICK = Limits(generation_s=20, read_s=10, calibrate_s=60, floor_s=30, cap_s=300)


def test_faults_of_a_vllm_that_serves_are_found_out_in_time(vllm: Path, tmp_path: Path, free_port: int) -> None:
    """One boot: another model's name, a window too short, a core that is stopped and one that is killed."""
    model, log = write_tiny_hf(tmp_path / "model", "qwen3", weights=True), tmp_path / "engine.log"
    listen = ("--host", "127.0.0.1", "--port", str(free_port))
    command = [vllm, "serve", model, *listen, "--served-model-name", "tiny", "--max-model-len", "2048"]
    env = {**os.environ, "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "NO_COLOR": "1"}

    def probed(length: int, name: str = "tiny") -> Verdict:
        declared = Endpoint(
            contract=Contract(seqs=2, len=length),
            engine=ServedBy(kind="vllm", version="0.32.0"),
            model=ModelRef(path=str(model), served_name=name),
            service=Service(listen=f"127.0.0.1:{free_port}"),
        )
        verdict = probe_endpoint(declared, ADAPTER.api, read_ledger(log, "vllm"), limits=QUICK)
        in_time(verdict, QUICK)
        return verdict

    with (
        log.open("wb") as sink,
        subprocess.Popen([*command, "--enforce-eager"], stdout=sink, stderr=sink, env=env) as run,
    ):
        try:
            wait_for(lambda: "Application startup complete" in log.read_text("utf-8", "replace"), 400)
            core = next(pid for pid in procfs.tree(run.pid) if "EngineCore" in procfs.command(pid, limit=200))
            sound = probed(1024)
            assert sound.word == "holds", told(sound)
            other = probed(1024, "another")
            assert (other.word, leg(other, "model-id").code) == ("broken", "model-id-mismatch"), told(other)
            short = probed(4096)
            assert (short.word, leg(short, "capacity").code) == ("broken", "window-exceeded"), told(short)
            os.kill(core, signal.SIGSTOP)
            stopped = probed(1024)
            assert leg(stopped, "health").status == "pass"  # which is all that a monitor asks
            assert (stopped.word, leg(stopped, "generation").code) == ("broken", "request-timeout"), told(stopped)
            os.kill(core, signal.SIGCONT)
            os.kill(core, signal.SIGKILL)
            wait_for(lambda: run.poll() is not None or "EngineDeadError" in log.read_text("utf-8", "replace"), 60)
            assert probed(1024).word == "broken"
        finally:
            for pid in procfs.tree(run.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


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
