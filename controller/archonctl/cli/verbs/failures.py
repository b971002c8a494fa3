"""``archonctl failures``."""

from __future__ import annotations

from argparse import Namespace

from archonctl.cli.endpoint import all_installed
from archonctl.cli.output import Output


def run(args: Namespace, out: Output) -> int:
    """What ran out of memory, by class, with its site."""
    from archonctl.cli.failures_text import failures_json, failures_text
    from archonctl.observe.failure_journal import read
    from archonctl.observe.failures import classify
    from archonctl.observe.relief import reliefs
    from archonctl.service.status import engine_kinds

    installed = all_installed(args.endpoints, out)
    named = {each.name for each in installed} if args.endpoints else None
    found = [
        each for each in classify(read(args.since, engine_kinds(installed))) if named is None or each.endpoint in named
    ]
    ways = reliefs(found, installed)
    if out.json:
        out.value(failures_json(found, args.since, ways))
    else:
        out.answer(failures_text(found, args.since, ways, out))
    return 1 if found else 0
