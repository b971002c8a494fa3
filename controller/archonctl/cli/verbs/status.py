"""``archonctl status``."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import asdict
from typing import TYPE_CHECKING

from archonctl.cli.endpoint import installed_of
from archonctl.cli.output import Output

if TYPE_CHECKING:
    from archonctl.service.status import Status

_COLOUR = {"holds": "green", "unverified": "yellow", "no evidence": "yellow", "half done": "yellow"}
_HEAD = ("ENDPOINT", "STATE", "UNIT", "RELEASE", "UP", "RESTARTS", "CONTRACT", "LISTEN")


def run(args: Namespace, out: Output) -> int:
    """One line an endpoint."""
    from archonctl.service.installed import Installed, installed_names
    from archonctl.service.status import status
    from archonctl.service.unit import show

    chosen = [installed_of(word, out) for word in args.endpoints] or [Installed(name) for name in installed_names()]
    found = [status(each, show(each.unit)) for each in chosen]
    if out.json:
        out.value({"schema": "archonctl.status/1", "endpoints": [_json(each) for each in found]})
    else:
        out.answer(_table(found, out) if found else "no endpoint is installed on this machine")
    words = {each.word for each in found}
    if words & {"down", "broken", "half done"}:
        return 1
    return 3 if words - {"holds"} else 0


def _json(each: Status) -> dict[str, object]:
    return {name: None if value == "" else value for name, value in asdict(each).items()}


def _table(found: list[Status], out: Output) -> str:
    rows = [_row(each) for each in found]
    widths = [max(map(len, column)) for column in zip(_HEAD, *rows, strict=True)]
    lines = [
        out.paint("  ".join(word.ljust(width) for word, width in zip(_HEAD, widths, strict=True)).rstrip(), "bold")
    ]
    for each, row in zip(found, rows, strict=True):
        cells = [word.ljust(width) for word, width in zip(row, widths, strict=True)]
        cells[1] = out.paint(cells[1], _COLOUR.get(each.word, "red"))
        lines.append("  ".join(cells).rstrip())
        lines += [f"  {each.remark}"] if each.remark else []
    return "\n".join(lines)


def _row(each: Status) -> tuple[str, ...]:
    contract = f"{each.seqs:,} x {each.len_tokens:,}" if each.seqs and each.len_tokens else "?"
    release, up = each.release[:8] or "none", _age(each.age_s)
    return (each.endpoint, each.word, each.active, release, up, str(each.restarts), contract, each.listen or "?")


def _age(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"
