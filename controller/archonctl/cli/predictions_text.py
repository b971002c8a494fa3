"""Predictions for people and for tools."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from archonctl.cli.output import Output
from archonctl.probe.predictions import figures
from archonctl.service.predictions import History, Scoring

SCHEMA = "archonctl.predictions/1"
_COLOUR = {"hit": "green", "falsified": "red", "too rounded": "yellow", "not measured": "dim"}


def exit_of(found: Sequence[History]) -> int:
    """1 if the last word on one is "falsified", 3 if none was measured, else 0."""
    last = [each.last for each in found if each.declared is not None]
    if any(each is not None and each.value.get("score") == "falsified" for each in last):
        return 1
    return 0 if any(each is not None and each.measured for each in last) else 3


def scored_text(name: str, found: Sequence[History], *, everything: bool, out: Output) -> str:
    """A line a prediction, or one a scoring."""
    if not found:
        return f"{name}: nothing is foretold; a [[predict]] in the declaration does"
    lines = []
    for each in found:
        withdrawn = "" if each.declared else "  (no longer declared)"
        lines.append(f"{each.name}{withdrawn}")
        rows = each.scorings if everything else (each.last,) if each.last else ()
        lines += [f"  {_line(row, out)}" for row in rows if row is not None]
        if not rows:
            lines.append("  no verdict has scored it yet")
    return "\n".join(lines)


def _line(row: Scoring, out: Output) -> str:
    value = row.value
    score = str(value.get("score"))
    unit = f" {value['unit']}" if value.get("unit") else ""
    expected = f"{_number(value.get('expect'))}{unit} +- {_percent(value.get('band'))}"
    if not row.measured:
        said = f"expected {expected}: {value.get('why')}"
    else:
        off = value.get("off")
        by = f", {off:+.1%}" if isinstance(off, int | float) else ""
        said = f"expected {expected}, came {_number(value.get('actual'))}{unit}{by}"
    return f"{out.paint(score, _COLOUR.get(score, 'dim'))}  {said}  (release {row.release}, {row.at}, {row.by})"


def _number(value: object) -> str:
    return (
        f"{value:,.6g}"
        if isinstance(value, float) and value != int(value)
        else f"{value:,.0f}"
        if isinstance(value, int | float)
        else "unknown"
    )


def _percent(value: object) -> str:
    return f"{value:.3g}".rstrip() if not isinstance(value, int | float) else f"{value:.1%}"


def scores_json(name: str, found: Sequence[History], *, everything: bool) -> dict[str, Any]:
    """Under the published schema, ``docs/schemas/predictions-1.json``."""
    return {
        "schema": SCHEMA,
        "action": "scores",
        "endpoint": name,
        "predictions": [
            {
                "name": each.name,
                "declared": each.declared is not None,
                "last": _scoring(each.last) if each.last else None,
                "scorings": [_scoring(row) for row in each.scorings] if everything else None,
            }
            for each in found
        ],
    }


def _scoring(row: Scoring) -> dict[str, Any]:
    return {"release": row.release, "at": row.at, "by": row.by, "prediction": dict(row.value)}


def figures_json() -> dict[str, Any]:
    """What can be foretold."""
    keys = ("name", "unit", "leg", "about", "source")
    return {"schema": SCHEMA, "action": "figures", "figures": [{k: getattr(f, k) for k in keys} for f in figures()]}


def figures_text() -> str:
    """The same for people."""
    rows = [f"{row.name:<24} {row.unit:<9} {row.about} ({row.leg})" for row in figures()]
    return "\n".join([*rows, "and every figure of the engine's boot log (archonctl ledger FILE)"])
