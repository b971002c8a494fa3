"""Options of ``archonctl report``."""

from __future__ import annotations

import argparse

from archonctl.cli.options.common import whose
from archonctl.cli.when import moment

SERVE = "127.0.0.1:9488"
NOTES = """\
examples:
  archonctl report archon --html archon.html   one page, whole in itself: to keep, to send, to print
  archonctl report --all --html all.html       an index and every endpoint, on one page
  archonctl report --serve                     on 127.0.0.1:9488 until it is stopped, made anew when it is asked for
  archonctl report archon > archon.html

On it: a memory map of each card, contract and capacity over releases, the last verdict with its log lines, predictions
scored, findings of the gate and of drift, memory that ran out by class, a timeline. Each figure names its source. The
page holds no script and asks nothing of any other place. Needs no privileges; the journal needs root or the group
systemd-journal, and the page says where it could not be read.

exit: 0, 2 nothing to report on is named, 5 the file cannot be written or the address not be used"""


def configure(verb: argparse.ArgumentParser) -> None:
    """Add them."""
    verb.add_argument(
        "endpoints",
        nargs="*",
        metavar="ENDPOINT",
        help="endpoints with a record here (default: $ARCHON_ENDPOINT, else 'archon' or the only one)",
    )
    verb.add_argument("--all", action="store_true", help="every endpoint, under an index")
    verb.add_argument("--html", metavar="FILE", help="write the page there; - is stdout")
    verb.add_argument(
        "--serve",
        nargs="?",
        const=SERVE,
        metavar="ADDRESS:PORT",
        help=f"serve it until stopped (default: {SERVE}); without ENDPOINT every endpoint",
    )
    verb.add_argument(
        "--since",
        type=moment,
        default="7d",
        metavar="WHEN",
        help="how far back the journal is read: 7d, 12h or 2026-01-31 (default: 7d)",
    )
    whose(verb)
