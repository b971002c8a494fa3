"""Options of ``archonctl inspect``."""

from __future__ import annotations

import argparse

NOTES = """\
example:
  archonctl inspect model.gguf --json"""


def configure(verb: argparse.ArgumentParser) -> None:
    """Add them."""
    what = "a .gguf file (the first part of a split one), or a folder of safetensors"
    verb.add_argument("model", metavar="MODEL", help=what)
