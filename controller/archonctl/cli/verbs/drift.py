"""``archonctl drift``."""

from __future__ import annotations

from argparse import Namespace

from archonctl.cli.endpoint import installed_of
from archonctl.cli.output import Output

FOUND, NOT_ALL_SEEN = 8, 3


def run(args: Namespace, out: Output) -> int:
    """Compare, present; 8 if anything differs."""
    from archonctl.service.drift import Drift, drift
    from archonctl.service.installed import Installed, installed_names
    from archonctl.service.status import last_verdict
    from archonctl.service.unit import show

    chosen = [installed_of(word, out) for word in args.endpoints] or [Installed(name) for name in installed_names()]

    def look(each: Installed) -> Drift:
        state = show(each.unit)
        return drift(each, state, last_verdict(each, state))

    found = [look(each) for each in chosen]
    if out.json:
        out.value({"schema": "archonctl.drift/1", "endpoints": [_json(each) for each in found]})
    else:
        out.answer("\n".join(_text(each, out) for each in found) or "no endpoint is installed on this machine")
    if any(each.differences for each in found):
        return FOUND
    return NOT_ALL_SEEN if any(each.unchecked for each in found) else 0


def _text(found: object, out: Output) -> str:
    from archonctl.service.drift import Drift

    assert isinstance(found, Drift)
    word = out.paint("drift", "bold", "red") if found.differences else out.paint("no drift", "bold", "green")
    lines = [f"{found.endpoint}: {word}, release {found.release or 'none'}"]
    lines += [f"  {difference.finding(found.endpoint)}" for difference in found.differences]
    return "\n".join([*lines, *(out.paint(f"  not checked: {text}", "dim") for text in found.unchecked)])


def _json(found: object) -> dict[str, object]:
    from archonctl.service.drift import Drift

    assert isinstance(found, Drift)
    return {
        "endpoint": found.endpoint,
        "release": found.release or None,
        "drift": bool(found.differences) or (None if found.unchecked else False),
        "differences": [
            {
                "code": each.code,
                "what": each.what,
                "expected": each.expected,
                "actual": each.actual,
                "where": each.place or None,
                "fix": each.finding(found.endpoint).fix,
            }
            for each in found.differences
        ],
        "unchecked": list(found.unchecked),
    }
