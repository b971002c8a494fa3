"""Options of ``archonctl explain``."""

from __future__ import annotations

import argparse

NOTES = """\
example:
  archonctl explain contract-short"""


def configure(verb: argparse.ArgumentParser) -> None:
    """Add them."""
    verb.add_argument("code", nargs="?", metavar="CODE", help="a refusal or finding code; without it: the list")
