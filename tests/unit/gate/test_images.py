"""Image references: what pins, what moves, and which version a tag names."""

from __future__ import annotations

import pytest

from archonctl.gate.images import engine_version, parse_image, why_unpinned

DIGEST = "sha256:" + "0" * 64


@pytest.mark.parametrize(
    ("engine", "image", "version"),
    [
        ("vllm", "vllm/vllm-openai:v0.9.2", "0.9.2"),
        ("vllm", "docker.io/vllm/vllm-openai:v0.8.5.post1", "0.8.5.post1"),
        ("vllm", "vllm/vllm-openai:v0.11.0-x86_64", "0.11.0"),
        ("vllm", f"vllm/vllm-openai:v0.9.2@{DIGEST}", "0.9.2"),
        ("vllm", "vllm/vllm-openai:latest", ""),
        ("vllm", "vllm/vllm-openai:nightly-0123456", ""),
        ("vllm", "registry:5000/vllm/vllm-openai:v0.9.2", "0.9.2"),
        ("vllm", "rocm/vllm:rocm6.3.1_instinct_vllm0.8.3_20250410", "0.8.3"),
        ("vllm", "somebody/vllm-fork:v1.2.3", ""),
        ("llamacpp", "ghcr.io/ggml-org/llama.cpp:server-b4719", "b4719"),
        ("llamacpp", "ghcr.io/ggml-org/llama.cpp:server-cuda-b4719", "b4719"),
        ("llamacpp", "ghcr.io/ggerganov/llama.cpp:server", ""),
        ("sglang", "lmsysorg/sglang:v0.4.6.post1-cu124", "0.4.6.post1"),
        ("sglang", "lmsysorg/sglang:latest", ""),
        ("radiance", "registry.example/radiance:1.8.1", "1.8.1"),
        ("vllm", "", ""),
    ],
)
def test_the_version_of_a_tag(engine: str, image: str, version: str) -> None:
    assert engine_version(engine, image) == version


@pytest.mark.parametrize(
    ("image", "why"),
    [
        (f"a/b@{DIGEST}", ""),
        (f"a/b:v1@{DIGEST}", ""),
        ("a/b:v1", "pushed again"),
        ("a/b", "no tag moves"),
        ("a/b:latest", "the tag latest moves"),
        ("localhost:5000/b", "no tag moves"),
        ("a/b@sha256:12", "its digest is none"),
        ("a/b:nightly-2026", "moves"),
    ],
)
def test_what_pins_an_image(image: str, why: str) -> None:
    assert why in why_unpinned(image)
    assert bool(why_unpinned(image)) == bool(why)


def test_a_port_is_no_tag() -> None:
    assert parse_image("localhost:5000/a/b:v1").repository == "localhost:5000/a/b"
    assert parse_image("docker://localhost:5000/a/b").tag == ""
