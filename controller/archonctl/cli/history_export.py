"""The record of an endpoint for other tools: JSON lines, or a table as CSV (RFC 4180)."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from datetime import UTC, datetime

from archonctl.observe.entries import Entry, entry_json

_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""What a spreadsheet takes for the beginning of a formula: reasons quote what an engine wrote.

https://owasp.org/www-community/attacks/CSV_Injection
"""
COLUMNS = (
    "at",
    "endpoint",
    "kind",
    "event",
    "release",
    "verdict",
    "contract_tokens",
    "live_tokens",
    "predictions_hit",
    "predictions_falsified",
    "predictions_other",
    "reasons",
    "before",
    "transaction",
    "invocation",
    "user",
    "archonctl",
    "kernel",
    "boot_id",
    "pages_limit",
    "file",
)


def jsonl(found: Sequence[Entry]) -> str:
    """A JSON object a line."""
    return "\n".join(json.dumps(entry_json(each), sort_keys=False) for each in found)


def csv_text(found: Sequence[Entry]) -> str:
    """A head and a row an entry; times in ISO 8601, UTC; an empty cell is what nobody knows."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(COLUMNS)
    table.writerows(_row(each) for each in found)
    return text.getvalue().rstrip("\n")


def _row(entry: Entry) -> list[str | int]:
    hit, falsified = entry.scored("hit"), entry.scored("falsified")
    cells = (
        datetime.fromtimestamp(entry.at, UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        entry.endpoint,
        "verdict" if entry.is_verdict else "event",
        entry.event,
        entry.release,
        entry.verdict,
        entry.contract_tokens,
        entry.live_tokens,
        hit,
        falsified,
        len(entry.predictions) - hit - falsified,
        " | ".join(entry.reasons),
        entry.before,
        entry.transaction,
        entry.invocation,
        entry.user,
        entry.archonctl,
        *(entry.facts.get(name) for name in ("kernel", "boot_id", "pages_limit")),
        str(entry.file),
    )
    return [_cell(each) for each in cells]


def _cell(value: str | int | None) -> str | int:
    if isinstance(value, str) and value.startswith(_FORMULA):
        return f"'{value}"
    return "" if value is None else value
