"""``archonctl completion``."""

from __future__ import annotations

from argparse import Namespace

from archonctl.cli.output import Output


def run(args: Namespace, out: Output) -> int:
    """Generate from the same table that parses the arguments."""
    import shtab

    from archonctl.cli.parser import build_parser

    out.answer(shtab.complete(build_parser(), args.shell))
    return 0
