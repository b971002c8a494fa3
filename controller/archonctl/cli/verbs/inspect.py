"""``archonctl inspect``."""

from __future__ import annotations

from argparse import Namespace

from archonctl.cli.output import Output


def run(args: Namespace, out: Output) -> int:
    """Read a header and present it."""
    from archonctl.model.inspect import inspect_model

    facts = inspect_model(args.model)
    if out.json:
        from archonctl.model.as_json import facts_json

        out.value(facts_json(facts))
    else:
        from archonctl.cli.inspect_text import facts_text

        out.answer(facts_text(facts, out))
    return 0
