"""``archonctl fleet status``."""

from __future__ import annotations

import argparse

from archonctl.cli.fleet.hosts import at_once, carry_out
from archonctl.cli.output import Output


def configure(action: argparse.ArgumentParser) -> None:
    """Add its options."""
    at_once(action)


def run(args: argparse.Namespace, out: Output) -> int:
    """Look at every host; what was seen of cards and RAM is kept."""
    from archonctl.fleet.rollout.run import Asked

    return carry_out(args, out, Asked("status", forks=args.forks, facts=args.facts, timeout_s=300))
