"""Options of ``archonctl stop``."""

from __future__ import annotations

import argparse

from archonctl.cli.options.common import endpoint, whose

NOTES = """\
example:
  archonctl stop tiny"""


def configure(verb: argparse.ArgumentParser) -> None:
    """Add them."""
    endpoint(verb)
    whose(verb)
