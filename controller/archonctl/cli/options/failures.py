"""Options of ``archonctl failures``."""

from __future__ import annotations

import argparse

NOTES = """\
examples:
  archonctl failures                     what ran out of memory within the last week, by class
  archonctl failures archon --since -1d  of one endpoint, since yesterday
  archonctl failures --json

Read from the journal: the engines' own lines, the kernel, the GPU drivers, systemd. An exit status of 137 alone is no
evidence of it. Needs root or the group systemd-journal, else only what this user may see is read.

exit: 0 nothing ran out, 1 something did, 5 the journal cannot be read"""


def configure(verb: argparse.ArgumentParser) -> None:
    """Add them."""
    verb.add_argument(
        "endpoints", nargs="*", metavar="ENDPOINT", help="installed endpoints (default: all, and the host)"
    )
    verb.add_argument(
        "--since",
        default="-7d",
        metavar="WHEN",
        help="as journalctl takes it: -7d, yesterday, 2026-01-31 (default: %(default)s)",
    )
