"""Options of ``archonctl predictions``."""

from __future__ import annotations

import argparse

from archonctl.cli.options.common import endpoint

NOTES = """\
A [[predict]] is a figure that was named before a change. Every verdict scores it: by the boot log, by what the probe
measured, or not at all, and says why.

examples:
  archonctl predictions archon
  archonctl predictions --figures             what can be foretold, in which unit, and where it is read

exit: 0 none is falsified, 1 one is, 3 none was measured"""


def configure(verb: argparse.ArgumentParser) -> None:
    """Add them."""
    endpoint(verb)
    verb.add_argument("--figures", action="store_true", help="list the figures that a prediction can name")
    verb.add_argument("--all", action="store_true", help="every verdict that scored it, not only the last one")
