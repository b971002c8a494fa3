"""Options of ``archonctl drift``."""

from __future__ import annotations

import argparse

from archonctl.cli.options.common import whose

NOTES = """\
examples:
  archonctl drift
  archonctl drift archon --json

Compares the TTM limit, unit, drop-ins, environment, argv, image, model file, kernel and boot with the release and with
its last verdict. The environment of an engine of another user is for root; what cannot be seen is said.

exit: 0 no drift, 8 drift found, 3 nothing differs, but not everything could be looked at"""


def configure(verb: argparse.ArgumentParser) -> None:
    """Add them."""
    verb.add_argument("endpoints", nargs="*", metavar="ENDPOINT", help="installed endpoints (default: all)")
    whose(verb)
