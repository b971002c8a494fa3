"""``archonctl fleet``."""

from __future__ import annotations

from argparse import Namespace
from importlib import import_module

from archonctl.cli.output import Output


def run(args: Namespace, out: Output) -> int:
    """Do one action; each says in its own module what its exit codes are."""
    code: int = import_module(f"archonctl.cli.fleet.{args.action}").run(args, out)
    return code
