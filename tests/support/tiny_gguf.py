"""Small models for tests: ``python tests/support/tiny_gguf.py ARCH OUT.gguf [--layers N] [--kv-heads N] ...``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from archonctl.model.demo_gguf import ARCHITECTURES, write_tiny_gguf

__all__ = ["ARCHITECTURES", "main", "write_tiny_gguf"]

_FIGURES = ("ctx", "layers", "hidden", "ff", "heads", "kv_heads", "head_dim", "window", "seed")


def main(arguments: list[str]) -> int:
    """Write one model; every figure that is not named keeps the default of ``write_tiny_gguf``."""
    parser = argparse.ArgumentParser(description="Write a small random model that llama-server loads.")
    parser.add_argument("arch", choices=ARCHITECTURES)
    parser.add_argument("out", type=Path)
    for figure in _FIGURES:
        parser.add_argument(f"--{figure.replace('_', '-')}", type=int, dest=figure)
    parser.add_argument("--name")
    given = vars(parser.parse_args(arguments))
    arch, out = given.pop("arch"), given.pop("out")
    path = write_tiny_gguf(out, arch, **{key: value for key, value in given.items() if value is not None})
    print(f"{path} {path.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
