"""Options of ``archonctl render``."""

from __future__ import annotations

import argparse

from archonctl.cli.options.common import endpoint

NOTES = """\
example:
  archonctl render tiny --out build/tiny

Byte-identical, and not even rewritten, when nothing changed."""


def configure(verb: argparse.ArgumentParser) -> None:
    """Add them."""
    endpoint(verb)
    verb.add_argument("--out", required=True, metavar="DIR", help="folder for the rendered files (created)")
