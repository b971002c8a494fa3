"""Options of ``archonctl verify``."""

from __future__ import annotations

import argparse

from archonctl.cli.options.common import probing

NOTES = """\
examples:
  archonctl verify archon                  the verdict on archon@archon.service, as root
  archonctl verify archon --leg admission  cheaper: accepted at full height, not held to the end
  archonctl verify archon --leg admission --when-idle     what archon-verify@archon.timer does daily

The unit runs it itself (ExecStartPost=), so that its start succeeds only when the contract holds.

exit: 0 holds, 1 broken, 3 no evidence, 5 nothing installed"""


def configure(verb: argparse.ArgumentParser) -> None:
    """Add them."""
    verb.add_argument("name", metavar="NAME", help="an installed endpoint: archon@NAME.service")
    probing(verb)
    verb.add_argument(
        "--when-idle",
        action="store_true",
        help="wait until nobody uses the engine (an hour at most), and give way the moment that somebody does: "
        "the verdict that there was stays then",
    )
