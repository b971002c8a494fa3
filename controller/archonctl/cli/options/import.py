# ruff: noqa: N999  a verb's module has its name
"""Options of ``archonctl import``."""

from __future__ import annotations

import argparse

NOTES = """\
examples:
  archonctl import docker-compose.yml
  archonctl import llama.service --out env/llama.toml
  archonctl import 4711 --name chat --engine-version b11434

Nothing is executed: files and /proc are read. What was not understood stands as comments on top of the declaration.
Secrets are named and never copied."""


def configure(verb: argparse.ArgumentParser) -> None:
    """Add them."""
    verb.add_argument(
        "source",
        metavar="FILE|DIR|UNIT|PID",
        help="compose file, unit, Quadlet, shell script, a folder of them, or a PID",
    )
    verb.add_argument("--name", default="", metavar="N", help="name of the endpoint (default: the file's or service's)")
    verb.add_argument("--engine-version", default="", metavar="V", help="the engine's version, where no file says it")
    verb.add_argument(
        "--out",
        metavar="PATH",
        help="write the declaration there (a folder where there are several); never over another",
    )
