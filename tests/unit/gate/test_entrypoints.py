"""Commands behind images that start their engine themselves.

Reports: vllm-project/vllm 37133, 27389 and 22072, vllm-project.github.io 305, ggml-org/llama.cpp 14019; the entrypoint
of vllm/vllm-openai changed with 0.11.1 (vllm-project/vllm 25967).
"""

from __future__ import annotations

import pytest

from unit.gate.conftest import Judge, codes

LLAMA = "ghcr.io/ggml-org/llama.cpp:server-cuda-b6000"


@pytest.mark.parametrize(
    ("image", "command"),
    [
        ("vllm/vllm-openai:v0.17.1", "vllm serve m --port 9527"),
        ("docker.io/vllm/vllm-openai:v0.9.2", "serve m"),
        ("vllm/vllm-openai:latest", "python3 -m vllm.entrypoints.openai.api_server --model m"),
        ("vllm/vllm-openai", "bash -c 'vllm serve m'"),
        (LLAMA, "/app/llama-server -m x"),
        (LLAMA, "/bin/sh -c 'llama-server -m x'"),
    ],
)
@pytest.mark.parametrize("form", ["compose", "run", "quadlet"])
def test_a_program_behind_an_image_that_starts_one_is_refused(
    judge: Judge, image: str, command: str, form: str
) -> None:
    text, name = {
        "compose": (f'services:\n  x:\n    image: {image}\n    command: "{command}"\n', "compose.yml"),
        "run": (f"#!/bin/sh\ndocker run --rm {image} {command}\n", "start.sh"),
        "quadlet": (f"[Container]\nImage={image}\nExec={command}\n", "x.container"),
    }[form]
    assert "container-entrypoint-twice" in codes(judge(text, name), "error")


@pytest.mark.parametrize(
    ("image", "command"),
    [
        ("vllm/vllm-openai:v0.17.1", "--entrypoint vllm IMAGE serve m"),
        ("vllm/vllm-openai:v0.17.1", "--entrypoint '' IMAGE vllm serve m"),
        ("vllm/vllm-openai:v0.17.1", "IMAGE m --port 1"),
        ("vllm/vllm-openai:v0.9.2", "IMAGE --model m --port 1"),
        ("rocm/vllm:rocm6.3.1_instinct_vllm0.8.3_20250410", "IMAGE vllm serve m"),
        ("somebody/vllm-openai:v0.17.1", "IMAGE vllm serve m"),
        ("lmsysorg/sglang:v0.5.4", "IMAGE python3 -m sglang.launch_server --model-path x"),
        ("ghcr.io/ggml-org/llama.cpp:full-b6000", "IMAGE --server -m x"),
        (LLAMA, "IMAGE -m x"),
    ],
)
def test_other_starts_are_left_alone(judge: Judge, image: str, command: str) -> None:
    text = f"#!/bin/sh\ndocker run --rm {command.replace('IMAGE', image)}\n"
    assert codes(judge(text, "start.sh"), "error") == []


@pytest.mark.parametrize(("version", "says"), [("0.9.2", "refused"), ("0.11.0", "default model"), ("0.11.1", "")])
def test_an_older_image_does_not_serve_the_model_that_stands_first(judge: Judge, version: str, says: str) -> None:
    found = judge(f"#!/bin/sh\npodman run vllm/vllm-openai:v{version} Qwen/Qwen3-8B --port 1\n", "start.sh")
    errors = [one.message for one in found if one.severity == "error"]
    assert [says in text for text in errors] == ([True] if says else [])
