"""``archonctl fleet rollback``."""

from __future__ import annotations

import argparse

from archonctl.cli.fleet.hosts import at_once, carry_out, depth, turns
from archonctl.cli.output import Output


def configure(action: argparse.ArgumentParser) -> None:
    """Add its options."""
    action.add_argument(
        "--to",
        default="",
        metavar="N|DIGEST",
        help="which release: the N-th that held, or its digest (default: each host's last other one that held)",
    )
    turns(action)
    depth(action)
    at_once(action)


def run(args: argparse.Namespace, out: Output) -> int:
    """Go back, host after host."""
    from archonctl.fleet.rollout.run import Asked

    asked = Asked(
        "rollback",
        args.canary,
        args.serial,
        args.forks,
        depth=args.verify,
        timeout_s=args.timeout,
        facts=args.facts,
        take_over=args.take_over,
        to=args.to,
    )
    return carry_out(args, out, asked)
