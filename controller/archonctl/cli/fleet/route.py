"""``archonctl fleet route``."""

from __future__ import annotations

import argparse

from archonctl.cli.output import Output
from archonctl.errors import UsageError


def configure(action: argparse.ArgumentParser) -> None:
    """Add its options."""
    del action


def run(args: argparse.Namespace, out: Output) -> int:
    """Do it."""
    del args, out
    raise UsageError("command-line-invalid", "this action is not built yet")
