"""Options of ``archonctl watch``."""

from __future__ import annotations

import argparse

from archonctl.cli.options.common import positive, whose

NOTES = """\
examples:
  archonctl watch                  every installed endpoint, until q is pressed
  archonctl watch archon           one of them
  ssh -t HOST archonctl watch      over ssh
  archonctl watch --once           one look, on stdout
  archonctl watch --json           the same for tools

Bars show what is planned of each card and of the host, with a mark at what its driver says is used now; below are
every endpoint (the worst first), one of them at length, and what was found within a day: refusals, memory that ran
out, drift. What was not seen is a question mark or a dash, never 0. Nothing that hangs makes it hang. Needs no
privileges; what an engine's key guards, and other users' processes, are seen only by who may.

keys: q or Ctrl-C leaves, arrows or j and k choose an endpoint, PgUp and PgDn turn pages, Ctrl-L draws anew

exit: 0 when it is left. With --once, --json, or if stdout is no terminal, as of status: 0 all hold, 1 one is down,
broken or half done, 3 one was not asked since it was started"""


def configure(verb: argparse.ArgumentParser) -> None:
    """Add them."""
    verb.add_argument(
        "endpoints", nargs="*", metavar="ENDPOINT", help="installed endpoints (default: all, also new ones)"
    )
    verb.add_argument(
        "--every", type=positive, default=2.0, metavar="S", help="seconds between looks (default: %(default)g)"
    )
    verb.add_argument("--once", action="store_true", help="look once, print it, end")
    whose(verb)
