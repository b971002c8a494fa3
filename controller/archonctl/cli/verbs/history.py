"""``archonctl history``."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from typing import Protocol, TypeVar

from archonctl.cli.endpoint import recorded_of
from archonctl.cli.output import Output
from archonctl.errors import UsageError

_LINES = 20


class _Dated(Protocol):
    @property
    def at(self) -> float: ...


T = TypeVar("T", bound=_Dated)


def run(args: Namespace, out: Output) -> int:
    """The events, oldest first."""
    if args.export:
        return _export(args, out)
    from archonctl.cli.installed_text import history_json, history_text

    installed = recorded_of(args.endpoint, out, user=args.user)
    history, current = installed.history(), installed.current()
    records = _chosen(history.records, args.since, _LINES if args.lines is None else args.lines)
    if out.json:
        out.value(history_json(installed.name, current, history, records))
    else:
        out.answer(history_text(installed.name, current, history, records, out))
    return 0


def _export(args: Namespace, out: Output) -> int:
    from archonctl.cli.history_export import csv_text, jsonl
    from archonctl.observe.entries import entries

    if out.json:
        why = "--json is one value, and an export is many lines: leave one of them out"
        raise UsageError("command-line-invalid", why, hint="--export jsonl is JSON, a line an event")
    installed = recorded_of(args.endpoint, out, user=args.user)
    found = entries(installed)
    chosen = _chosen(found.found, args.since, args.lines or 0)
    if found.unreadable or found.passed_over_bytes:
        out.talk(
            f"archonctl: {found.unreadable:,} lines and files cannot be read, "
            f"{found.passed_over_bytes:,} bytes at the beginning were passed over"
        )
    text = csv_text(chosen) if args.export == "csv" else jsonl(chosen)
    if text:
        out.answer(text)
    return 0


def _chosen(found: Sequence[T], since: float | None, lines: int) -> Sequence[T]:
    """What happened since then, at most so many of the newest."""
    newer = [each for each in found if since is None or each.at >= since]
    return newer[-lines:] if lines > 0 else newer
