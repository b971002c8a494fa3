"""Options of ``archonctl ledger``."""

from __future__ import annotations

import argparse

from archonctl.cli.options.common import positive

NOTES = """\
examples:
  archonctl ledger boot.log
  archonctl ledger --unit archon            the last start of archon@archon.service
  archonctl ledger --container vllm         the last start of a docker or podman container
  archonctl ledger --follow boot.log        while it is written, until the engine serves
  kubectl logs pod | archonctl ledger - --json
  archonctl ledger check cases.jsonl --json

exit: 0 figures were read, 1 the log shows why it did not start, 3 no evidence, 5 no such unit or container"""

FOLLOW_S = 3600.0


def configure(verb: argparse.ArgumentParser) -> None:
    """Add them."""
    verb.add_argument("file", nargs="*", metavar="FILE", help="a boot log, '-' for stdin; or: check CASES.jsonl")
    verb.add_argument("--engine", default="auto", metavar="KIND", help="default: detected from the lines")
    verb.add_argument("--unit", metavar="NAME", help="the journal of a unit's last start; NAME of an endpoint will do")
    verb.add_argument("--container", metavar="NAME", help="the log of a container's last start, from docker or podman")
    verb.add_argument("-f", "--follow", action="store_true", help="read on until the engine serves or the log ends")
    verb.add_argument(
        "--timeout",
        type=positive,
        default=FOLLOW_S,
        metavar="SECONDS",
        help="how long to follow at most (default: %(default)g)",
    )
