"""``archonctl drift``."""

from __future__ import annotations

from argparse import Namespace

from archonctl.cli.endpoint import all_installed
from archonctl.cli.output import Output

FOUND, NOT_ALL_SEEN = 8, 3


def run(args: Namespace, out: Output) -> int:
    """Compare, present; 8 if anything differs."""
    from archonctl.cli.installed_text import drift_json, drift_text
    from archonctl.service.drift import drift
    from archonctl.service.status import last_verdict
    from archonctl.service.unit import show

    looks = [(each, show(each.unit, user=args.user)) for each in all_installed(args.endpoints, out, user=args.user)]
    found = [drift(each, state, last_verdict(each, state)) for each, state in looks]
    if out.json:
        out.value(drift_json(found))
    else:
        out.answer(drift_text(found, out))
    if any(each.findings for each in found):
        return FOUND
    return NOT_ALL_SEEN if any(each.unchecked for each in found) else 0
