"""Options of ``archonctl inspect``."""

from __future__ import annotations

import argparse

NOTES = """\
examples:
  archonctl inspect model.gguf --json
  archonctl inspect /models/qwen3-30b-a3b                       a folder of safetensors, quantised or not
  archonctl inspect hf:Qwen/Qwen3-30B-A3B                       headers by range requests, no weights
  archonctl inspect hf:org/name@refs/pr/1/model-Q4_K_M.gguf     a revision, and one file of it

environment: HF_ENDPOINT, HF_TOKEN, HF_TOKEN_PATH, HF_HOME; what was read is kept in ~/.cache/archonctl/models"""


def configure(verb: argparse.ArgumentParser) -> None:
    """Add them."""
    what = (
        "a .gguf file (the first part of a split one), a folder of safetensors, hf:ORG/NAME[@REV][/FILE] or https://..."
    )
    verb.add_argument("model", metavar="MODEL", help=what)
