"""Options of ``archonctl plan``."""

from __future__ import annotations

import argparse

from archonctl.cli.options.common import endpoint

NOTES = """\
examples:
  archonctl plan --seqs 3 --len 200000
  archonctl plan env/archon.toml --set engine.knobs.host-pool-mib=44928

exit: 0 holds, 1 short, 3 unknown"""


def configure(verb: argparse.ArgumentParser) -> None:
    """Add them."""
    endpoint(verb)
