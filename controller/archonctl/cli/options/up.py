"""Options of ``archonctl up``."""

from __future__ import annotations

import argparse

from archonctl.cli.options.common import endpoint, probing

NOTES = """\
examples:
  archonctl up tiny                 keeps the engine running if the contract holds
  archonctl up tiny --once          stops it after the verdict (CI)

exit: 0 holds, 1 broken, 3 no evidence, 4 the plan refuses, 5 the host refuses"""


def configure(verb: argparse.ArgumentParser) -> None:
    """Add them."""
    endpoint(verb)
    verb.add_argument("--once", action="store_true", help="stop the engine after the verdict")
    verb.add_argument("--force", action="store_true", help="start although the plan says that it will not hold")
    verb.add_argument("--keep", action="store_true", help="leave the engine running even if the verdict is not 'holds'")
    place = verb.add_mutually_exclusive_group()
    place.add_argument(
        "--foreground",
        action="store_const",
        const="child",
        dest="run_as",
        help="supervise a child here even where systemd could run the unit",
    )
    place.add_argument(
        "--detach",
        action="store_const",
        const="detached",
        dest="run_as",
        help="leave it in the background, without systemd",
    )
    verb.set_defaults(run_as="auto")
    probing(verb)
