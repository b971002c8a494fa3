"""``archonctl fleet apply``."""

from __future__ import annotations

import argparse

from archonctl.cli.fleet.hosts import at_once, carry_out, depth, whole
from archonctl.cli.output import Output


def configure(action: argparse.ArgumentParser) -> None:
    """Add its options."""
    action.add_argument("--canary", default="", metavar="HOST", help="the first one (default: the first by name)")
    action.add_argument(
        "--serial", type=whole, default=1, metavar="N", help="hosts changed at once after the canary (default: 1)"
    )
    action.add_argument("--check", action="store_true", help="judge, render and compare on each host; change nothing")
    depth(action)
    at_once(action)


def run(args: argparse.Namespace, out: Output) -> int:
    """Roll out."""
    from archonctl.fleet.rollout.run import Asked

    asked = Asked("apply", args.canary, args.serial, args.forks, args.check, args.verify, args.timeout, args.facts)
    return carry_out(args, out, asked)
