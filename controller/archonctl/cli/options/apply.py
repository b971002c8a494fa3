"""Options of ``archonctl apply``."""

from __future__ import annotations

import argparse

from archonctl.cli.options.common import changing, endpoint, whose

NOTES = """\
examples:
  archonctl apply archon --check --diff     what would change; nothing is touched
  archonctl apply archon --yes              from the running release to the declared one, or back
  archonctl apply archon.plan.json --yes    what 'archonctl plan --out' kept, if nothing that it stood on changed
  archonctl apply archon --verify admission a cheaper verdict: accepted at full height, not held to the end

Needs root. Everything that can be known is checked while the old engine still serves; then it is stopped, since there
is one set of cards, and the new one has to hold its contract or gives way to the last release that did.

exit: 0 holds, 1 does not hold and there was no way back, 3 no evidence, 4 and 5 refused before anything was touched,
      6 rolled back and the old release holds, 7 rolled back and the old one does not hold either"""


def configure(verb: argparse.ArgumentParser) -> None:
    """Add them."""
    endpoint(verb)
    whose(verb)
    group = changing(verb)
    group.add_argument("--check", action="store_true", help="judge, render and compare; change nothing")
    group.add_argument(
        "--as",
        dest="place",
        default="",
        metavar="FILE",
        help="ENDPOINT is a copy of this declaration, which need not be there yet; as if it lay there",
    )
    group.add_argument("--diff", action="store_true", help="show what differs from what runs or is installed")
