"""``archonctl status``."""

from __future__ import annotations

from argparse import Namespace

from archonctl.cli.endpoint import all_installed
from archonctl.cli.output import Output


def run(args: Namespace, out: Output) -> int:
    """One line an endpoint; 0 only if all of them hold."""
    from dataclasses import replace
    from functools import partial

    from archonctl.cli.installed_text import status_json, status_text
    from archonctl.service import unit
    from archonctl.service.recheck import recheck
    from archonctl.service.status import status

    show = partial(unit.show, user=args.user)
    found = [
        replace(status(each, show(each.unit)), recheck=recheck(each.name, show))
        for each in all_installed(args.endpoints, out, user=args.user)
    ]
    if out.json:
        out.value(status_json(found))
    else:
        out.answer(status_text(found, out))
    words = {each.word for each in found}
    if words & {"down", "broken", "half done"}:
        return 1
    return 3 if words - {"holds"} else 0
