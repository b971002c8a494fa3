"""``archonctl fleet apply``."""

from __future__ import annotations

import argparse

from archonctl.cli.fleet.hosts import at_once, carry_out, depth, turns
from archonctl.cli.output import Output


def configure(action: argparse.ArgumentParser) -> None:
    """Add its options."""
    turns(action)
    action.add_argument("--check", action="store_true", help="judge, render and compare on each host; change nothing")
    depth(action)
    at_once(action)


def run(args: argparse.Namespace, out: Output) -> int:
    """Roll out."""
    from archonctl.fleet.rollout.run import Asked

    asked = Asked(
        "apply",
        args.canary,
        args.serial,
        args.forks,
        args.check,
        args.verify,
        args.timeout,
        args.facts,
        args.take_over,
    )
    return carry_out(args, out, asked)
