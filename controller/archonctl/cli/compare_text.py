"""Two releases side by side, for people and for tools."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from archonctl.cli.output import Output
from archonctl.observe.compare import Comparison, Row, Value
from archonctl.observe.side import Side

SCHEMA = "archonctl.compare/1"
_CELL = 30
"""Characters of a value that still fit into a table of 80 to 120 columns."""


def compare_text(found: Comparison, out: Output, *, everything: bool) -> str:
    """A table a section: what was, what is, the difference where both are numbers; long texts on their own lines."""
    lines = [f"{out.paint('-', 'red')} {_head(found.was)}", f"{out.paint('+', 'green')} {_head(found.now)}"]
    rows = found.rows if everything else found.changes
    for section, group in groupby(rows, key=lambda row: row.section):
        lines += ["", out.paint(section, "bold"), *_table(list(group), out)]
    if not found.changes:
        lines += ["", "nothing differs" + ("" if not found.unknown else " in what could be compared")]
    lines += [out.paint(f"not compared: {each}", "dim") for each in found.unknown]
    return "\n".join(lines)


def _head(side: Side) -> str:
    seen = f"\n    verdict {side.verdict_file}" if side.verdict_file else ""
    return f"{side.name}@{side.digest}\n    release {side.folder}{seen}"


def _table(rows: Sequence[Row], out: Output) -> Iterator[str]:
    short = [row for row in rows if max(len(_cell(row, row.was)), len(_cell(row, row.now))) <= _CELL]
    name, was, now = (
        max((len(text(row)) for row in short), default=0)
        for text in (lambda row: row.name, lambda row: _cell(row, row.was), lambda row: _cell(row, row.now))
    )
    for row in rows:
        cells = _cell(row, row.was), _cell(row, row.now)
        if row.same:
            yield out.paint(f"    {row.name:{name}}  {cells[0]}", "dim")
        elif row not in short:
            yield f"    {row.name}"
            yield from (
                out.paint(f"  {sign} {each}", tone)
                for sign, each, tone in zip("-+", cells, ("red", "green"), strict=True)
                if each
            )
        else:
            delta = f"  {_number(row.delta, sign=True)}" if row.delta is not None else ""
            before, after = (
                f"{sign} {each:>{size}}" if each else " " * (size + 2)
                for sign, each, size in zip("-+", cells, (was, now), strict=True)
            )
            yield f"    {row.name:{name}}  {out.paint(before, 'red')}  {out.paint(after, 'green')}{delta}".rstrip()


def _cell(row: Row, value: Value) -> str:
    shown = "unknown" if value is None else value if isinstance(value, str) else _number(value)
    return f"{shown} {row.unit}" if row.unit and value not in (None, "") else shown


def _number(value: float, *, sign: bool = False) -> str:
    plus = "+" if sign else ""
    return f"{value:{plus},.0f}" if value == int(value) else f"{value:{plus},.6g}"


def compare_json(found: Comparison, *, everything: bool) -> dict[str, Any]:
    """Under the published schema, ``docs/schemas/compare-1.json``."""
    return {
        "schema": SCHEMA,
        "same": not found.changes,
        "was": _side(found.was),
        "now": _side(found.now),
        "rows": [
            {
                "section": row.section,
                "name": row.name,
                "was": row.was,
                "now": row.now,
                "unit": row.unit or None,
                "delta": row.delta,
                "same": row.same,
            }
            for row in (found.rows if everything else found.changes)
        ],
        "unknown": list(found.unknown),
    }


def _side(side: Side) -> dict[str, str | None]:
    return {
        "endpoint": side.name,
        "release": side.digest,
        "folder": str(side.folder),
        "verdict_file": str(side.verdict_file) if side.verdict_file else None,
    }
