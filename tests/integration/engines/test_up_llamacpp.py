"""The whole spine on a real llama-server: plan, release, start, boot ledger, full-height requests, verdict."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import pytest

from archonctl.service import procfs
from archonctl.service.lookup import find_running, stop
from archonctl.service.state import EndpointState
from support.engines import wait_for

pytestmark = pytest.mark.engine

DECLARATION = """
[contract]
seqs = {seqs}
len = {length}
kv_dtype = "f16"
[engine]
kind = "llamacpp"
version = "b11434"
binary = "{binary}"
[engine.knobs]
{knobs}
[model]
path = "{model}"
[host]
detect = true
[service]
listen = "127.0.0.1:{port}"
load_timeout_s = 200
"""

Declare = Callable[..., Path]


class Result(Protocol):
    """What the command answered."""

    code: int
    stdout: str
    stderr: str


Archonctl = Callable[..., Result]


@pytest.fixture
def declare(tmp_path: Path, llama_server: Path, tiny_gguf: Callable[..., Path], free_port: int) -> Declare:
    """``declare(seqs=2, knobs="...")`` writes a declaration that this machine can run."""

    def write(**changes: object) -> Path:
        path = tmp_path / "env" / "small.toml"
        path.parent.mkdir(exist_ok=True)
        values: dict[str, object] = {
            "seqs": 2,
            "length": 1024,
            "binary": llama_server,
            "knobs": "",
            "model": tiny_gguf("llama"),
            "port": free_port,
        }
        path.write_text(DECLARATION.format(**values | changes))
        return path

    return write


@pytest.fixture
def state(tmp_path: Path) -> Iterator[EndpointState]:
    found = EndpointState(tmp_path / "state", "small")
    yield found
    stop(found)


@pytest.fixture
def archonctl(run_cli: Archonctl, tmp_path: Path) -> Archonctl:
    """The command with a state folder of its own."""

    def run(*words: str | Path) -> Result:
        return run_cli(*words, env={"ARCHON_STATE_DIR": str(tmp_path / "state")}, timeout=280)

    return run


def engines_of(port: int) -> list[int]:
    return [s.pid for s in procfs.all_stats() if f"--port {port}" in procfs.command(s.pid, limit=4000)]


def test_once_holds_and_leaves_nothing(
    archonctl: Archonctl, declare: Declare, state: EndpointState, free_port: int
) -> None:
    done = archonctl("up", declare(), "--once", "--json", "--foreground", "--leg", "admission")
    assert done.code == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["verdict"] == "holds"
    assert engines_of(free_port) == []
    assert state.recorded() is None
    assert "KV buffer size" in state.log.read_text()
    assert (state.releases / "current" / "argv.json").is_file()


def test_a_second_run_writes_no_second_release(archonctl: Archonctl, declare: Declare, state: EndpointState) -> None:
    for _ in range(2):
        assert archonctl("up", declare(), "--once", "--foreground", "--leg", "ledger").code in (0, 3)
    assert len([p for p in state.releases.iterdir() if not p.is_symlink()]) == 1


def test_a_context_that_is_too_small_is_refused_and_caught_when_forced(
    archonctl: Archonctl, declare: Declare, state: EndpointState, free_port: int
) -> None:
    path = declare(knobs="ctx-size = 1024")
    done = archonctl("up", path, "--once", "--foreground")
    assert done.code == 4, done.stderr
    assert "contract-short" in done.stderr
    assert not state.log.exists()
    done = archonctl("up", path, "--once", "--foreground", "--force", "--json")
    assert done.code == 1, done.stderr
    assert json.loads(done.stdout)["verdict"] == "broken"
    assert engines_of(free_port) == []


def test_what_the_host_lacks_is_refused_before_the_start(
    archonctl: Archonctl, declare: Declare, state: EndpointState, free_port: int, tmp_path: Path
) -> None:
    (tmp_path / "page").write_text("<html>")
    done = archonctl("up", declare(binary=tmp_path / "none"), "--foreground")
    assert (done.code, "engine-binary-missing" in done.stderr) == (5, True), done.stderr
    for binary in (tmp_path, tmp_path / "page"):
        done = archonctl("up", declare(binary=binary), "--foreground")
        assert (done.code, "engine-binary-unusable" in done.stderr) == (5, True), done.stderr
    with socket.create_server(("127.0.0.1", free_port)):
        done = archonctl("up", declare(), "--foreground")
    assert (done.code, "port-in-use" in done.stderr) == (5, True), done.stderr
    assert f"pid {os.getpid()}" in done.stderr
    done = archonctl("up", declare(), "--foreground", "--set", "model.bytes=1")
    assert (done.code, "model-bytes-differ" in done.stderr) == (2, True), done.stderr
    assert not state.log.exists()


def test_an_engine_that_refuses_the_model_is_told_with_its_words(
    archonctl: Archonctl, declare: Declare, tmp_path: Path, llama_server: Path, free_port: int
) -> None:
    wrapper = tmp_path / "llama-server"
    wrapper.write_text(f'#!/bin/sh\nexec {shlex.quote(str(llama_server))} "$@" --no-such-flag\n')
    wrapper.chmod(0o755)
    done = archonctl("up", declare(binary=wrapper), "--foreground")
    assert done.code == 1, done.stderr
    assert "engine-exited-at-boot" in done.stderr
    assert "--no-such-flag" in done.stderr
    assert "Traceback" not in done.stderr


def test_it_serves_until_ctrl_c_and_can_be_probed_meanwhile(
    archonctl: Archonctl, declare: Declare, state: EndpointState, free_port: int
) -> None:
    path = declare()
    env = os.environ | {"ARCHON_STATE_DIR": str(state.folder.parent)}
    command = [Path(sys.executable).with_name("archonctl"), "up", path, "--foreground"]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        try:
            wait_for(lambda: child.poll() is not None or find_running(state), 240)
            assert child.poll() is None, child.communicate()
            found = find_running(state)
            assert found is not None
            assert engines_of(free_port) == [found.pid]
            assert archonctl("up", path, "--foreground").code == 5
            probed = archonctl("probe", path, "--leg", "ledger")
            assert "boot ledger: " + str(state.log) in probed.stderr
        finally:
            child.send_signal(signal.SIGINT)
            out, err = child.communicate(timeout=120)
    assert engines_of(free_port) == []
    assert "Traceback" not in out + err


def test_json_is_out_while_the_engine_is_still_supervised(declare: Declare, tmp_path: Path) -> None:
    command = [
        Path(sys.executable).with_name("archonctl"),
        "up",
        declare(),
        "--foreground",
        "--leg",
        "ledger",
        "--json",
    ]
    environ = {**os.environ, "ARCHON_STATE_DIR": str(tmp_path / "state")}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environ
    ) as process:
        assert process.stdout is not None
        text = ""
        try:
            while line := process.stdout.readline():
                text += line
                if line == "}\n":
                    break
            value = json.loads(text)
            assert value["verdict"] == "holds"
            assert value["engine"]["ended"] == "running"
            assert process.poll() is None
        finally:
            process.send_signal(signal.SIGINT)
        assert process.stdout.read() == ""
        assert process.wait(timeout=120) in (0, 130)  # 130 where Ctrl-C comes before the supervision has begun
