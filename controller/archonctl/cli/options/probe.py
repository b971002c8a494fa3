"""Options of ``archonctl probe``."""

from __future__ import annotations

import argparse

from archonctl.cli.options.common import endpoint, more_legs, probing

NOTES = """\
examples:
  archonctl probe
  archonctl probe tiny --leg admission
  archonctl probe archon --when-idle --interference

exit: 0 holds, 1 broken, 3 no evidence"""


def configure(verb: argparse.ArgumentParser) -> None:
    """Add them."""
    endpoint(verb)
    verb.add_argument("--log", metavar="FILE", help="the engine's boot log (default: the one that 'up' keeps)")
    probing(verb)
    more_legs(verb)
