"""A real vLLM on a CPU: where it is, and a declaration of one over a model of 2 MiB."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support.tiny_hf import write_tiny_hf

_DECLARATION = """
[contract]
seqs = {seqs}
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


def installed() -> Path:
    """The program (``ARCHON_TEST_VLLM``); skips the test where there is none."""
    named = os.environ.get("ARCHON_TEST_VLLM", "")
    if not named or not os.access(named, os.X_OK):
        pytest.skip("no vLLM: set ARCHON_TEST_VLLM to the vllm of a virtual environment")
    return Path(named).absolute()


def declare(folder: Path, binary: Path, port: int, *, knobs: str = "", seqs: int = 3) -> Path:
    """``small.toml`` in this folder: so many conversations of 2,048 tokens."""
    model, path = write_tiny_hf(folder / "model", "qwen3", weights=True), folder / "small.toml"
    path.write_text(_DECLARATION.format(binary=binary, knobs=knobs, model=model, port=port, seqs=seqs))
    return path
