"""``archonctl history``."""

from __future__ import annotations

from argparse import Namespace
from datetime import datetime
from typing import Any

from archonctl.cli.endpoint import installed_of
from archonctl.cli.output import Output


def run(args: Namespace, out: Output) -> int:
    """The events, oldest first."""
    from archonctl.service.history import Record

    installed = installed_of(args.endpoint, out)
    history = installed.history()
    records = history.records[-args.lines :] if args.lines > 0 else history.records
    current = installed.current()

    def line(record: Record) -> str:
        when = datetime.fromtimestamp(record.at).astimezone().strftime("%Y-%m-%d %H:%M:%S %z")
        mark = "*" if record.release and record.release == current else " "
        head = f"{mark} {when}  {record.release or '-':<16}  {record.event:<11}  {record.verdict or '-':<11}"
        return "\n".join([f"{head}  {record.user}".rstrip(), *(f"    {reason}" for reason in record.reasons)])

    if out.json:
        events = [_json(record) for record in records]
        value = {"schema": "archonctl.history/1", "endpoint": installed.name, "current": current or None}
        out.value({**value, "unreadable_lines": history.unreadable, "events": events})
        return 0
    lines = [line(record) for record in records] or [f"{installed.name}: nothing has happened yet"]
    if history.unreadable:
        lines.append(f"{history.unreadable} lines are not whole and were passed over")
    out.answer("\n".join(lines))
    return 0


def _json(record: Any) -> dict[str, Any]:
    """What there is nothing to say of is null."""
    from dataclasses import asdict

    value = asdict(record)
    facts, reasons = value.pop("facts"), list(value.pop("reasons"))
    return {name: None if found == "" else found for name, found in value.items()} | {
        "reasons": reasons,
        "facts": {name: found for name, found in facts.items() if found != ""},
    }
