"""What the reading verbs say of installed endpoints, for people and for tools."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from archonctl.cli.output import Output
from archonctl.service.drift import Drift
from archonctl.service.history import History, Record
from archonctl.service.recheck import Recheck
from archonctl.service.status import Status

_COLOUR = {"holds": "green", "unverified": "yellow", "no evidence": "yellow", "half done": "yellow"}
_HEAD = ("ENDPOINT", "STATE", "UNIT", "RELEASE", "UP", "RESTARTS", "CONTRACT", "LISTEN", "VERIFIED AGAIN")
NONE = "no endpoint is installed on this machine"


def status_text(found: Sequence[Status], out: Output) -> str:
    """A table, one line an endpoint."""
    if not found:
        return NONE
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
    listen, again = each.listen or "?", _again(each.recheck)
    return (each.endpoint, each.word, each.active, release, up, str(each.restarts), contract, listen, again)


def _again(found: Recheck | None) -> str:
    if found is None:
        return "?"
    if found.ran_at is None:
        return found.word
    ended = {None: ", runs now", 0: "", 1: ": broken", 3: ": no evidence"}.get(found.exit, f": exit {found.exit}")
    return f"{found.word}, {_age(max(0.0, time.time() - found.ran_at))} ago{ended}"


def _age(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


def status_json(found: Sequence[Status]) -> dict[str, Any]:
    """``archonctl.status/1``; what there is nothing to say of is null."""
    return {"schema": "archonctl.status/1", "endpoints": [_unsaid_is_null(asdict(each)) for each in found]}


def history_text(name: str, current: str, history: History, records: Sequence[Record], out: Output) -> str:
    """One line an event, the current release marked, and why below it."""

    def line(record: Record) -> str:
        when = datetime.fromtimestamp(record.at).astimezone().strftime("%Y-%m-%d %H:%M:%S %z")
        mark = "*" if record.release and record.release == current else " "
        head = f"{mark} {when}  {record.release or '-':<16}  {record.event:<11}  {record.verdict or '-':<11}"
        return "\n".join([f"{head}  {record.user}".rstrip(), *(f"    {reason}" for reason in record.reasons)])

    lines = [line(record) for record in records] or [f"{name}: nothing has happened yet"]
    if history.unreadable:
        lines.append(out.paint(f"{history.unreadable} lines are not whole and were passed over", "dim"))
    if history.passed_over_bytes:
        said = (
            f"{history.passed_over_bytes:,} bytes at the beginning of the file were not read; the next event folds them"
        )
        lines.append(out.paint(said, "dim"))
    return "\n".join(lines)


def history_json(name: str, current: str, history: History, records: Sequence[Record]) -> dict[str, Any]:
    """``archonctl.history/1``."""
    return {
        "schema": "archonctl.history/1",
        "endpoint": name,
        "current": current or None,
        "unreadable_lines": history.unreadable,
        "passed_over_bytes": history.passed_over_bytes,
        "events": [_event(record) for record in records],
    }


def _event(record: Record) -> dict[str, Any]:
    value = asdict(record)
    facts = {name: found for name, found in value.pop("facts").items() if found != ""}
    return {**_unsaid_is_null(value), "reasons": list(record.reasons), "facts": facts}


def drift_text(found: Sequence[Drift], out: Output) -> str:
    """Every difference, and what was not looked at."""
    return "\n".join(_drift(each, out) for each in found) or NONE


def _drift(each: Drift, out: Output) -> str:
    word = out.paint("drift", "bold", "red") if each.findings else out.paint("no drift", "bold", "green")
    lines = [f"{each.endpoint}: {word}, release {each.release or 'none'}", *(f"  {found}" for found in each.findings)]
    return "\n".join([*lines, *(out.paint(f"  not checked: {text}", "dim") for text in each.unchecked)])


def drift_json(found: Sequence[Drift]) -> dict[str, Any]:
    """``archonctl.drift/1``."""
    endpoints = [
        {
            "endpoint": each.endpoint,
            "release": each.release or None,
            "drift": bool(each.findings) or (None if each.unchecked else False),
            "findings": [
                {"code": f.code, "message": f.message, "where": str(f.place) or None, "fix": f.fix or None}
                for f in each.findings
            ],
            "unchecked": list(each.unchecked),
        }
        for each in found
    ]
    return {"schema": "archonctl.drift/1", "endpoints": endpoints}


def logs_json(name: str, unit: str, invocation: str, lines: Sequence[str]) -> dict[str, Any]:
    """``archonctl.logs/1``."""
    where = {"endpoint": name, "unit": unit, "invocation": invocation or None}
    return {"schema": "archonctl.logs/1", **where, "lines": list(lines)}


def _unsaid_is_null(value: dict[str, Any]) -> dict[str, Any]:
    return {name: None if found == "" else found for name, found in value.items()}
