"""Options of ``archonctl rollback``."""

from __future__ import annotations

import argparse

from archonctl.cli.options.common import changing, installed, whose

NOTES = """\
examples:
  archonctl rollback archon                 to the last other release that held
  archonctl rollback archon 2               to the one before that
  archonctl rollback archon 0a702ef1        to this release (archonctl history archon)

It is verified too; if it does not hold, what ran before is started again, if that held. Needs root.

exit: 0 holds, 1 and 3 does not and there was no way back, 6 the release before runs again and holds, 7 it does not"""


def configure(verb: argparse.ArgumentParser) -> None:
    """Add them."""
    installed(verb)
    verb.add_argument("to", nargs="?", default="", metavar="N|DIGEST", help="which: the N-th that held, or its digest")
    whose(verb)
    changing(verb)
