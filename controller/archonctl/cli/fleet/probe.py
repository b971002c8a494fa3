"""``archonctl fleet probe``."""

from __future__ import annotations

import argparse

from archonctl.cli.fleet.hosts import at_once, carry_out, depth
from archonctl.cli.output import Output


def configure(action: argparse.ArgumentParser) -> None:
    """Add its options."""
    depth(action)
    at_once(action)


def run(args: argparse.Namespace, out: Output) -> int:
    """Ask every engine."""
    from archonctl.fleet.rollout.run import Asked

    asked = Asked("probe", forks=args.forks, depth=args.verify, timeout_s=args.timeout, facts=args.facts)
    return carry_out(args, out, asked)
