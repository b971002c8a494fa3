"""A real llama-server that has no memory for its cache: from its line to the change under which it starts."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from archonctl.deployment.load import load_endpoint
from archonctl.engines import adapter
from archonctl.host.load import load_host
from archonctl.observe.failures import Line, classify
from archonctl.observe.relief import question
from archonctl.plan.load import load_model
from archonctl.plan.relief import Way, relieve
from archonctl.plan.trial import Trial
from support.engines import wait_for

pytestmark = pytest.mark.engine

SPACE = 2 << 30
"""Bytes of address space that the engine may have, as a machine with less RAM would stop it."""
DECLARATION = """
[contract]
seqs = 2
len = 1_048_576
[engine]
kind = "llamacpp"
version = "b11434"
binary = {binary}
[engine.knobs]
threads = 1
cache-ram = 0
[model]
path = {model}
[host]
profile = {host}
[service]
listen = "127.0.0.1:{port}"
"""


def test_a_cache_that_finds_no_memory_comes_to_a_length_that_does(
    llama_server: Path, tiny_gguf: Any, free_port: int, tmp_path: Path
) -> None:
    host = tmp_path / "host.toml"
    host.write_text('name = "small"\nram_mib = 1024\navailable_mib = 1024\n')
    path = tmp_path / "small.toml"
    words = {"binary": llama_server, "model": tiny_gguf("qwen2"), "host": host}
    path.write_text(DECLARATION.format(port=free_port, **{key: json.dumps(str(value)) for key, value in words.items()}))
    loaded = load_endpoint(path, {}, {})
    trial = Trial(loaded.name, loaded.endpoint, load_host(loaded), load_model(loaded.endpoint))

    log = tmp_path / "log"
    assert _started(trial, {}, log, free_port) is False
    said = log.read_text(errors="replace").splitlines()
    (failure,) = classify(Line(float(n) / 1000, "engine", text, "small", "llamacpp") for n, text in enumerate(said))
    assert (failure.cls, failure.pool, failure.at_most) == ("kv_cache", False, True)

    found = relieve(trial, question([failure]))
    assert found.scope == "host"
    assert found.runbook == "ran-out-of-kv-cache"
    shorter = next(way for way in found.ways if way.key == "contract.len")
    assert isinstance(shorter.value, int)
    assert shorter.value < 1_048_576
    assert _started(trial, shorter, tmp_path / "second", free_port) is True


def _started(trial: Trial, way: Way | dict[str, Any], log: Path, port: int) -> bool:
    """True if the engine listens, False if it gave up; either way it is gone afterwards."""
    endpoint = trial.endpoint_with(way.set if isinstance(way, Way) else way)
    argv = adapter("llamacpp").command(endpoint).argv
    with log.open("wb") as out:
        limited = ["prlimit", f"--as={SPACE}", *argv, "--fit", "off"]
        engine = subprocess.Popen(limited, stdout=out, stderr=subprocess.STDOUT)
    try:
        wait_for(lambda: engine.poll() is not None or b"listening" in log.read_bytes(), seconds=180)
        return engine.poll() is None
    finally:
        engine.kill()
        engine.wait(120)
