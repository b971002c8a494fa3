"""Predictions scored: a figure that was named before a change, against what the legs and the boot log say. Pure."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from archonctl.deployment.schema import Prediction
from archonctl.ledger.values import BootLedger
from archonctl.probe.values import Leg, Score, Scored

_PLACE = "{n}"
_PREFILL = re.compile(r"prefill_tps_(\d{1,4})k")


@dataclass(frozen=True, slots=True)
class FigureSource:
    """Where a figure comes from. ``name`` and ``key`` may hold ``{n}``, a number."""

    name: str
    unit: str
    leg: str
    key: str
    about: str
    source: str


@cache
def figures() -> tuple[FigureSource, ...]:
    """The table of ``figures.toml``."""
    text = (Path(__file__).parent / "figures.toml").read_text(encoding="utf-8")
    return tuple(FigureSource(**row) for row in tomllib.loads(text)["figure"])


def find_figure(name: str) -> FigureSource | None:
    """The row that a name means, with its number filled in; None if there is none."""
    for row in figures():
        pattern = re.escape(row.name).replace(re.escape(_PLACE), r"(\d{1,4})")
        if found := re.fullmatch(pattern, name):
            number = found[1] if found.groups() else ""
            return FigureSource(name, row.unit, row.leg, row.key.replace(_PLACE, number), row.about, row.source)
    return None


def prefill_sizes(predictions: Sequence[Prediction]) -> dict[str, int]:
    """The prompts that ``prefill_tps_<n>k`` asks for: name -> tokens, n and a half thousand."""
    found = {each.name: _PREFILL.fullmatch(each.name) for each in predictions}
    return {name: int(match[1]) * 1000 + 500 for name, match in found.items() if match}


def foretold(predictions: Sequence[Prediction], leg: str) -> bool:
    """True if a prediction names a figure of this leg."""
    found = (find_figure(each.name) for each in predictions)
    return any(row is not None and row.leg == leg for row in found)


def score_all(predictions: Sequence[Prediction], legs: Sequence[Leg], ledger: BootLedger | None) -> tuple[Scored, ...]:
    """Every prediction, in the order of the declaration."""
    by_id = {leg.id: leg for leg in legs}
    return tuple(_score(each, by_id, ledger) for each in predictions)


def _score(wanted: Prediction, legs: Mapping[str, Leg], ledger: BootLedger | None) -> Scored:
    row = find_figure(wanted.name)
    logged = ledger.figures.get(wanted.name) if ledger else None
    if logged is not None:
        value = logged.value
        return judge(wanted, value.best, value.low, value.high, row.unit if row else "")
    if row is None:
        known = ", ".join(each.name for each in figures())
        return _unmeasured(wanted, "", f"no check measures it and the boot log has no such figure; known: {known}")
    leg = legs.get(row.leg)
    number = leg.numbers.get(row.key) if leg else None
    if isinstance(number, int | float):
        return judge(wanted, float(number), float(number), float(number), row.unit)
    return _unmeasured(wanted, row.unit, _why(row, leg))


def _why(row: FigureSource, leg: Leg | None) -> str:
    if row.leg == "ledger":
        return "the boot log does not tell it"
    if leg is None:
        option = "--interference" if row.leg == "interference" else "--leg full"
        return f"the check {row.leg} did not run: archonctl probe ENDPOINT {option}"
    return f"the check {row.leg} did not measure it ({leg.status}: {leg.message})"


def _unmeasured(wanted: Prediction, unit: str, why: str) -> Scored:
    return Scored(wanted.name, wanted.expect, wanted.band, "not measured", unit, why=why)


def judge(wanted: Prediction, actual: float, low: float, high: float, unit: str = "") -> Scored:
    """Inside the band, outside it, or a rounding that reaches over its edge."""
    ends = sorted((wanted.expect * (1 - wanted.band), wanted.expect * (1 + wanted.band)))
    slack = 1e-9 * max(1.0, abs(wanted.expect))
    score: Score = "too rounded"
    if low >= ends[0] - slack and high <= ends[1] + slack:
        score = "hit"
    elif high < ends[0] - slack or low > ends[1] + slack:
        score = "falsified"
    return Scored(wanted.name, wanted.expect, wanted.band, score, unit, actual, low, high)


def scored_json(scored: Scored) -> dict[str, object]:
    """One scored prediction as plain JSON values."""
    off = scored.off
    return {
        "name": scored.name,
        "unit": scored.unit or None,
        "expect": scored.expect,
        "band": scored.band,
        "score": scored.score,
        "actual": scored.actual,
        "low": scored.low,
        "high": scored.high,
        "off": None if off is None else round(off, 6),
        "why": scored.why or None,
    }
