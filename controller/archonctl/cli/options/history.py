"""Options of ``archonctl history``."""

from __future__ import annotations

import argparse

from archonctl.cli.options.common import installed, whose
from archonctl.cli.when import moment

NOTES = """\
examples:
  archonctl history archon
  archonctl history archon -n 3 --json
  archonctl history archon --since 7d
  archonctl history archon --export csv > archon.csv        every event and every kept verdict, with live tokens
  archonctl history archon --export jsonl | jq .verdict     and what was foretold, as archonctl.history-entry/1

Each event is on disk before it counts. A history of more than 4 MiB is folded: its older half becomes one line that
counts what was in it; the last verdict on each release stays. Needs no privileges."""


def configure(verb: argparse.ArgumentParser) -> None:
    """Add them."""
    installed(verb)
    whose(verb)
    verb.add_argument(
        "-n", "--lines", type=int, metavar="N", help="the last N events (default: 20, of an export all; 0: all)"
    )
    verb.add_argument("--since", type=moment, metavar="WHEN", help="only what happened since: 7d, 12h or 2026-01-31")
    verb.add_argument(
        "--export", choices=("jsonl", "csv"), help="events and kept verdicts in one order of time, on stdout"
    )
