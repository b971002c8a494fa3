"""Options of ``archonctl history``."""

from __future__ import annotations

import argparse

from archonctl.cli.options.common import installed, whose

NOTES = """\
examples:
  archonctl history archon
  archonctl history archon -n 3 --json

Needs no privileges."""


def configure(verb: argparse.ArgumentParser) -> None:
    """Add them."""
    installed(verb)
    whose(verb)
    verb.add_argument(
        "-n", "--lines", type=int, metavar="N", default=20, help="the last N events (default: 20; 0: all)"
    )
