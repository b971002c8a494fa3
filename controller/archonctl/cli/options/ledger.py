"""Options of ``archonctl ledger``."""

from __future__ import annotations

import argparse

NOTES = """\
examples:
  archonctl ledger boot.log
  journalctl -u archon@x | archonctl ledger - --json
  archonctl ledger check cases.jsonl --json"""


def configure(verb: argparse.ArgumentParser) -> None:
    """Add them."""
    verb.add_argument("file", nargs="+", metavar="FILE", help="a boot log, '-' for stdin; or: check CASES.jsonl")
    verb.add_argument("--engine", default="auto", metavar="KIND", help="default: detected from the lines")
