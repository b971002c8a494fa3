"""Options of ``archonctl compare``."""

from __future__ import annotations

import argparse

from archonctl.cli.options.common import whose

NOTES = """\
examples:
  archonctl compare archon                    what the current release changed against the one before it
  archonctl compare archon@1f0c archon@77ab   two releases by the beginning of their digests (archonctl history)
  archonctl compare 1f0c                      that release against the current one
  archonctl compare archon tiny               the current releases of two endpoints
  archonctl compare archon --all --json       also what is alike

Compared: contract, engine and image, model, arguments, environment; the plan of each, made by the laws of now on this
machine; of each one's latest verdict the boot ledger, the legs, the predictions and what was measured of speed.

exit: 0 alike, 8 different, 3 alike as far as could be compared"""


def configure(verb: argparse.ArgumentParser) -> None:
    """Add them."""
    verb.add_argument(
        "sides",
        nargs="*",
        metavar="SIDE",
        help="ENDPOINT, ENDPOINT@DIGEST or DIGEST (a beginning of 4 digits will do); at most two",
    )
    verb.add_argument("--all", action="store_true", help="also what is alike")
    whose(verb)
