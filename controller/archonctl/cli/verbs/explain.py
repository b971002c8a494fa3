"""``archonctl explain``."""

from __future__ import annotations

from argparse import Namespace

from archonctl.cli.output import Output


def run(args: Namespace, out: Output) -> int:
    """Print a runbook page, or the list of codes."""
    from archonctl.runbook import page, pages

    if args.code is None:
        listed = pages()
        if out.json:
            out.value({"schema": "archonctl.explain/1", "codes": listed})
        else:
            width = max((len(code) for code in listed), default=0)
            out.answer("\n".join(f"{out.paint(code.ljust(width), 'bold')}  {title}" for code, title in listed.items()))
        return 0
    text = page(args.code)
    if out.json:
        out.value({"schema": "archonctl.explain/1", "code": args.code, "page": text})
    else:
        out.answer(text.rstrip())
    return 0
