"""Options of ``archonctl knobs``."""

from __future__ import annotations

import argparse

NOTES = """\
examples:
  archonctl knobs check --engine llamacpp --engine-version b11434 -- -m x -c 4096
  archonctl knobs check --engine vllm --engine-version 0.9.2 --json -- serve /models/m --max-num-seqs 4
  archonctl knobs why swap-space             its whole life: since when, forms, defaults, what replaced it
  archonctl knobs diff vllm 0.9.2 0.32.0     what an upgrade adds, removes, renames and changes
  archonctl knobs show radiance 1.8.1
  archonctl knobs harvest --image-help help.txt --engine vllm

ENGINE is llamacpp, vllm, sglang or radiance. 'check' ends with 0 for a command line that the version takes and
with 4 for one that it refuses or misreads."""

_ENGINE = "llamacpp, vllm, sglang or radiance"


def configure(verb: argparse.ArgumentParser) -> None:
    """Add them."""
    actions = verb.add_subparsers(dest="action", metavar="ACTION", required=True, help="what to do, see below")

    def action(name: str, summary: str) -> argparse.ArgumentParser:
        return actions.add_parser(name, help=summary, description=f"{summary}.", allow_abbrev=False)

    check = action("check", "judge a whole command line as one version's own parser would")
    check.add_argument("--engine", required=True, metavar="ENGINE", help=_ENGINE)
    check.add_argument(
        "--engine-version", default="", metavar="VERSION", help="without it: only what is wrong in every version"
    )
    check.add_argument(
        "argv",
        nargs="*",
        metavar="ARGV",
        help="behind '--': 'serve MODEL ...' for vllm, else from the first flag on; the program may stand in front",
    )
    show = action("show", "the flags of one version")
    show.add_argument("engine", nargs="?", metavar="ENGINE", help=f"{_ENGINE}; without it: which tables there are")
    show.add_argument("version", nargs="?", default="", metavar="VERSION", help="default: the newest that was read")
    show.add_argument("--flag", default="", metavar="FLAG", help="only this one, in full")
    why = action("why", "the whole life of a flag or a variable")
    why.add_argument("flag", metavar="FLAG", help="without its dashes, any spelling, or a variable")
    why.add_argument("--engine", default="", metavar="ENGINE", help="default: every engine that knows it")
    diff = action("diff", "what changed from one version to another")
    diff.add_argument("engine", metavar="ENGINE", help=_ENGINE)
    diff.add_argument("before", metavar="V1", help="the version that runs")
    diff.add_argument("after", metavar="V2", help="the version that shall run")
    harvest = action("harvest", "an engine's --help as rows, and what the table does not know of it")
    source = harvest.add_mutually_exclusive_group(required=True)
    source.add_argument("--binary", metavar="PATH", help="llama-server or vllm; it is run with --help and --version")
    source.add_argument("--image-help", metavar="FILE", help="what --help of an image printed; '-' is stdin")
    harvest.add_argument("--engine", default="", metavar="ENGINE", help="default: told by the text")
    harvest.add_argument("--engine-version", default="", metavar="VERSION", help="default: as --version says, or none")
    harvest.add_argument("--out", default="", metavar="FILE", help="write the rows there, for scripts/build-knob-table")
