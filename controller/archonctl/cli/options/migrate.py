"""Options of ``archonctl migrate``."""

from __future__ import annotations

import argparse

from archonctl.cli.options.common import endpoint

NOTES = """\
examples:
  archonctl migrate env/archon-pair.toml --to 1.8.1
  archonctl migrate chat --to 0.32.0 --out /tmp/chat.toml

Writes nothing without --write or --out. Comments and layout of the file are kept. The contract is never changed.

exit: 0 the proposed declaration holds, 1 it is short, 3 unknown"""


def configure(verb: argparse.ArgumentParser) -> None:
    """Add them."""
    endpoint(verb)
    verb.add_argument("--to", required=True, metavar="VERSION", help="the engine version to move to")
    verb.add_argument(
        "--boots",
        metavar="FILE",
        help="declaration whose [[boot]] tables are taken (default: a neighbour's, same model)",
    )
    group = verb.add_mutually_exclusive_group()
    group.add_argument("--out", metavar="FILE", help="write the new declaration there; never over a file")
    group.add_argument("--write", action="store_true", help="write it over the declaration itself")
