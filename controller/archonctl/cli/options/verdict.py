"""Options of ``archonctl verdict``."""

from __future__ import annotations

import argparse

NOTES = """\
examples:
  archonctl verdict show archon               the last verdict, and what each claim of it rests on
  archonctl verdict show archon --release 1f0c
  archonctl verdict list archon
  archonctl verdict replay archon             the same evidence by today's rules
  archonctl verdict replay --file verdict.json

exit: show 0 holds, 1 broken, 3 no evidence; replay 0 if nothing is judged otherwise, else 1"""


def configure(verb: argparse.ArgumentParser) -> None:
    """Add them."""
    actions = verb.add_subparsers(dest="action", metavar="ACTION", required=True, help="what to do, see below")
    for name, summary in (
        ("show", "a stored verdict: its word, its claims, and the evidence of each with its place"),
        ("list", "the verdicts that are stored, newest first"),
        ("replay", "judge the stored evidence again by today's rules, and say what changed"),
    ):
        action = actions.add_parser(
            name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.", allow_abbrev=False
        )
        action.add_argument(
            "endpoint",
            nargs="?",
            metavar="ENDPOINT",
            help="name or file; default: $ARCHON_ENDPOINT, else 'archon' or the only one",
        )
        action.add_argument("--release", metavar="R", default="", help="only of this release (a beginning will do)")
        if name != "list":
            action.add_argument("--file", metavar="FILE", help="a stored verdict, or the --json of verify, up or probe")
