"""Options of ``archonctl completion``."""

from __future__ import annotations

import argparse

NOTES = 'example:\n  eval "$(archonctl completion bash)"'


def configure(verb: argparse.ArgumentParser) -> None:
    """Add them."""
    verb.add_argument("shell", choices=("bash", "zsh", "fish", "tcsh"), help="whose completion script")
