"""``plan --oracle`` with a real vLLM: its configuration, its layers and its planner agree with the plan."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from archonctl.deployment.load import load_endpoint
from archonctl.service.oracle import consult
from support.tiny_hf import write_tiny_hf

pytestmark = [pytest.mark.engine, pytest.mark.optional, pytest.mark.timeout(600)]

DECLARED = """
[contract]
seqs = 2
len = {length}
kv_dtype = "{dtype}"
[engine]
kind = "vllm"
version = "0.32.0"
binary = "{binary}"
[engine.knobs]
{knobs}
[engine.env]
{env}
[model]
path = "{model}"
"""
ON_CPU = 'VLLM_CPU_KVCACHE_SPACE = "1"'
BYTES: dict[str, Any] = {"kv-cache-memory-bytes": 10 << 30}


@pytest.mark.parametrize(
    ("arch", "knobs", "env", "length", "dtype"),
    [
        pytest.param("qwen3next", {}, ON_CPU, 8192, "f16", id="hybrid-on-a-cpu"),
        pytest.param("qwen3next", {**BYTES, "pipeline-parallel-size": 2}, "", 8192, "f16", id="hybrid-for-two-cards"),
        pytest.param("gemma3", {**BYTES, "tensor-parallel-size": 2}, "", 30_000, "fp8", id="sliding-for-two-cards"),
        pytest.param("deepseek2", {**BYTES, "tensor-parallel-size": 4}, "", 8192, "f16", id="latent-for-four-cards"),
        pytest.param(
            "qwen3",
            {**BYTES, "pipeline-parallel-size": 2},
            'VLLM_PP_LAYER_PARTITION = "3,5"',
            8192,
            "f16",
            id="stages-by-hand",
        ),
        pytest.param("llama", {"kv-cache-memory-bytes": 10**7}, "", 200_000, "f16", id="refused-by-both"),
    ],
)
def test_the_installed_vllm_says_what_the_plan_says(
    arch: str, knobs: dict[str, Any], env: str, length: int, dtype: str, tmp_path: Path
) -> None:
    program = os.environ.get("ARCHON_TEST_VLLM", "")
    if not program:
        pytest.skip("no vLLM: set ARCHON_TEST_VLLM to the vllm of a virtual environment")
    model = write_tiny_hf(tmp_path / "model", arch, layers=8)
    said = "\n".join(f"{key} = {json.dumps(value)}" for key, value in knobs.items())
    path = tmp_path / "e.toml"
    path.write_text(DECLARED.format(length=length, dtype=dtype, binary=program, knobs=said, env=env, model=model))
    consulted = consult(load_endpoint(path, {}, {}), dict(os.environ))
    assert consulted.findings == ()
    assert len(consulted.figures) >= 3
