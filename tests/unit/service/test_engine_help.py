"""What an engine's binary says of its own version."""

from __future__ import annotations

from pathlib import Path

import pytest

from archonctl.service.engine_help import of_binary


@pytest.mark.parametrize(
    ("name", "said", "version"),
    [
        ("vllm", "Triton is installed, but has no CPU backend.\n0.32.0+cpu", "0.32.0"),
        ("vllm", "0.9.2", "0.9.2"),
        ("vllm", "0.11.0rc2.dev12+g1a2b3c4.cu129", "0.11.0rc2.dev12"),
        ("llama-server", "version: 11434 (5ef07e2)\nbuilt with GNU 12", "b11434"),
        ("llama-server", "version: 0 (unknown)\nbuilt with GNU 12", ""),
        ("vllm", "nothing", ""),
    ],
)
def test_the_version_that_a_binary_prints(tmp_path: Path, name: str, said: str, version: str) -> None:
    binary = tmp_path / name
    binary.write_text(f"#!/bin/sh\n[ \"$1\" = --version ] && cat <<'EOF'\n{said}\nEOF\nexit 0\n")
    binary.chmod(0o755)
    assert of_binary(str(binary))[1] == version
