"""vLLM's planner as an oracle: what it is asked, how its answer is read, and each way in which it has none.

A shell script stands in for the Python of a vLLM; ``tests/integration/engines/test_oracle_of_vllm.py`` asks a real one.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from archonctl.deployment.load import load_endpoint
from archonctl.errors import ArchonError
from archonctl.service.oracle import Consulted, consult
from support.tiny_hf import write_tiny_hf

DECLARED = """
[contract]
seqs = 2
len = {length}
[engine]
kind = "vllm"
version = "0.32.0"
binary = "{folder}/bin/vllm"
[engine.knobs]
{knobs}
[engine.env]
{env}
[model]
path = "{model}"
"""
SPACE = 'VLLM_CPU_KVCACHE_SPACE = "1"'
RIGHT: dict[str, Any] = {
    "version": "0.32.0",
    "block_tokens": 128,
    "max_model_len": 8192,
    "groups": 1,
    "block_bytes": 262_144,
    "blocks": 4096,
    "tokens": 524_288,
    "concurrency": 64.0,
}
Ask = Callable[..., Consulted]


@pytest.fixture
def ask(tmp_path: Path) -> Ask:
    def consulted(script: str | None, knobs: str = "", env: str = SPACE, length: int = 8192) -> Consulted:
        model = write_tiny_hf(tmp_path / "model", "qwen3")
        (tmp_path / "bin").mkdir(exist_ok=True)
        if script is not None:
            python = tmp_path / "bin" / "python"
            python.write_text(f"#!/bin/sh\n{script}\n")
            python.chmod(0o755)
        path = tmp_path / "e.toml"
        path.write_text(DECLARED.format(folder=tmp_path, model=model, knobs=knobs, env=env, length=length))
        return consult(load_endpoint(path, {}, {}), {"VLLM_USE_V2_MODEL_RUNNER": "1"})

    return consulted


def says(answer: dict[str, Any]) -> str:
    return f"echo 'INFO of some library'; echo {shlex.quote(json.dumps(answer))}"


def test_it_is_asked_with_the_flags_the_memory_and_the_environment_of_the_declaration(ask: Ask) -> None:
    script = f"""
    test "$2" = 1073741824 && test "$3" = 0 && test "$VLLM_CPU_KVCACHE_SPACE" = 1 || exit 9
    test -z "$VLLM_USE_V2_MODEL_RUNNER" || exit 8
    {says(RIGHT)}"""
    said = ask(script)
    assert said.argv[1].endswith("ask_planner.py")
    assert ("--max-model-len", "8192") in zip(said.argv, said.argv[1:], strict=False)
    assert said.findings == ()
    assert {figure.what for figure in said.figures} >= {"blocks", "printed tokens", "concurrency", "boots"}
    assert all(figure.agrees for figure in said.figures)


def test_for_a_gpu_it_is_told_the_block_of_the_backend(ask: Ask) -> None:
    with pytest.raises(ArchonError, match="ended with 16"):
        ask('exit "$3"', "kv-cache-memory-bytes = 1000000000", env="")
    with pytest.raises(ArchonError, match="ended with 32"):
        ask('exit "$3"', "kv-cache-memory-bytes = 1000000000\nblock-size = 32", env="")


def test_a_difference_is_a_finding(ask: Ask) -> None:
    said = ask(says({**RIGHT, "blocks": 4095, "tokens": 524_160}))
    assert [(finding.code, finding.severity) for finding in said.findings] == [("oracle-differs", "error")] * 2
    assert "4,095" in " ".join(str(finding) for finding in said.findings)


def test_a_refusal_stands_beside_the_plans(ask: Ask) -> None:
    words = (
        "To serve at least one request with the model's max seq len (262144), (0.5 GiB KV cache is needed, which is "
        "larger than the available KV cache memory (0.37 GiB). Based on the available memory, the estimated maximum "
        "model length is 195296."
    )
    said = ask(says({"version": "0.32.0", "refused": words}), "kv-cache-memory-bytes = 400000000", "", 262_144)
    assert [(figure.what, figure.oracle, figure.agrees) for figure in said.figures] == [
        ("boots", 0, True),
        ("one request needs", 0.5, True),
        ("longest request", 195_296, True),
    ]


@pytest.mark.parametrize(
    ("script", "code", "said"),
    [
        (None, "oracle-missing", "bin/python is not there"),
        ("echo nonsense", "oracle-failed", "no figures"),
        ("echo '[1]'", "oracle-failed", "no figures"),
        ("exit 0", "oracle-failed", "no figures"),
        ("echo 'vLLM 0.9: ImportError: no such thing' >&2; exit 1", "oracle-failed", "no such thing"),
        ("kill -9 $$", "oracle-failed", "ended with -9"),
    ],
)
def test_no_answer_is_an_error_with_a_name(ask: Ask, script: str | None, code: str, said: str) -> None:
    with pytest.raises(ArchonError) as caught:
        ask(script)
    assert caught.value.code == code
    assert said in caught.value.message


def test_a_python_without_a_vllm_is_named(ask: Ask) -> None:
    with pytest.raises(ArchonError, match="has no vLLM that can be imported") as caught:
        ask(f'exec {sys.executable} "$@"')
    assert caught.value.code == "oracle-failed"


def test_without_a_memory_there_is_nothing_to_plan(ask: Ask) -> None:
    with pytest.raises(ArchonError, match="knows no memory") as caught:
        ask("exit 0", env="")
    assert caught.value.code == "oracle-unavailable"
