"""Options of ``archonctl status``."""

from __future__ import annotations

import argparse

from archonctl.cli.options.common import whose

NOTES = """\
examples:
  archonctl status
  archonctl status archon --json

Needs no privileges.

exit: 0 all hold, 1 one is down, broken or half done, 3 one runs and was not asked since it was started"""


def configure(verb: argparse.ArgumentParser) -> None:
    """Add them."""
    verb.add_argument("endpoints", nargs="*", metavar="ENDPOINT", help="installed endpoints (default: all)")
    whose(verb)
