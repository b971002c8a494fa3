"""Options of ``archonctl logs``."""

from __future__ import annotations

import argparse

from archonctl.cli.options.common import installed, whose

NOTES = """\
examples:
  archonctl logs archon                     this start: the checks, the engine, systemd's own words
  archonctl logs archon -f -n 50

Needs root or the group systemd-journal."""


def configure(verb: argparse.ArgumentParser) -> None:
    """Add them."""
    installed(verb)
    whose(verb)
    verb.add_argument("-f", "--follow", action="store_true", help="go on with what is written from now on")
    verb.add_argument("-n", "--lines", type=int, metavar="N", help="the last N lines (default: all of this start)")
