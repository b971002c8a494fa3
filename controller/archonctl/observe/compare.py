"""Two releases side by side: what was declared, what runs it, what the plan says, and what was seen. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from archonctl.gate.running import options
from archonctl.memory.interval import MIB
from archonctl.observe.side import Side
from archonctl.plan.values import Plan
from archonctl.probe.stored import Stored

Section = Literal[
    "contract", "engine", "model", "service", "arguments", "environment", "plan", "ledger", "verdict", "throughput"
]
Value = str | int | float | None
"""None is what nobody knows; the empty text is what is not there."""
_SPEED = ("prefill", "capacity", "interference")
_MOST_CHARS = 400


@dataclass(frozen=True, slots=True)
class Row:
    """One thing of both. ``unit`` is empty for texts."""

    section: Section
    name: str
    was: Value
    now: Value
    unit: str = ""

    @property
    def same(self) -> bool:
        """True if there is nothing to tell."""
        return self.was == self.now

    @property
    def delta(self) -> float | None:
        """By how much it grew, where both are numbers."""
        if isinstance(self.was, int | float) and isinstance(self.now, int | float):
            return self.now - self.was
        return None


@dataclass(frozen=True, slots=True)
class Comparison:
    """Every row of both sides, those alike too. ``unknown`` says what could not be compared, and why."""

    was: Side
    now: Side
    rows: tuple[Row, ...]
    unknown: tuple[str, ...]

    @property
    def changes(self) -> tuple[Row, ...]:
        """What differs."""
        return tuple(row for row in self.rows if not row.same)


def compare(was: Side, now: Side) -> Comparison:
    """Row by row, in the order of the flow: declared, rendered, planned, seen."""
    rows = [*_declared(was, now), *_plans(was.plan, now.plan), *_seen(was, now)]
    unknown = [
        f"{side.name}@{side.digest[:8]}: {why}" for side in (was, now) for why in (side.no_plan, side.no_verdict) if why
    ]
    return Comparison(was, now, tuple(rows), tuple(unknown))


def _declared(was: Side, now: Side) -> Iterator[Row]:
    one, two = was.endpoint, now.endpoint
    yield Row("contract", "seqs", one.contract.seqs, two.contract.seqs, "sequences")
    yield Row("contract", "len", one.contract.len, two.contract.len, "tokens")
    yield Row("contract", "kv_dtype", one.contract.kv_dtype, two.contract.kv_dtype)
    yield Row("contract", "margin", one.contract.margin, two.contract.margin)
    for name in ("kind", "version", "image", "binary"):
        yield Row("engine", name, getattr(one.engine, name) or "", getattr(two.engine, name) or "")
    yield Row("model", "path", one.model.path, two.model.path)
    yield Row("model", "bytes", one.model.bytes, two.model.bytes, "bytes")
    yield Row("model", "sha256", one.model.sha256 or "", two.model.sha256 or "")
    for name, value in one.service.model_dump(mode="json").items():
        yield Row("service", name, _plain(value), _plain(two.service.model_dump(mode="json").get(name)))
    yield from _pairs("arguments", _words(was.argv), _words(now.argv))
    yield from _pairs("environment", was.env, now.env)


def _plain(value: object) -> Value:
    """A declared value in one word; what is not declared is the empty text."""
    return "" if value is None else value if isinstance(value, str | int | float) else json.dumps(value)[:_MOST_CHARS]


def _words(argv: Iterable[str]) -> dict[str, Value]:
    """A flag and its values; one without a value is "set"."""
    return {name: " ".join(values)[:_MOST_CHARS] or "set" for name, values in options(list(argv)).items()}


def _pairs(section: Section, was: Mapping[str, Value], now: Mapping[str, Value], unit: str = "") -> Iterator[Row]:
    """What one side does not have is the empty text there."""
    for name in dict.fromkeys([*was, *now]):
        yield Row(section, name, was.get(name, ""), now.get(name, ""), unit)


def _plans(was: Plan | None, now: Plan | None) -> Iterator[Row]:
    if was is None and now is None:
        return
    yield Row("plan", "verdict", was.verdict if was else None, now.verdict if now else None)
    for end in ("low", "best", "high"):
        yield Row("plan", f"capacity, {end}", _capacity(was, end), _capacity(now, end), "tokens")
    wanted, wants = _classes(was), _classes(now)
    for name in dict.fromkeys([*wanted, *wants]):
        absent = (None if was is None else 0, None if now is None else 0)
        yield Row("plan", name, wanted.get(name, absent[0]), wants.get(name, absent[1]), "MiB")


def _capacity(plan: Plan | None, end: str) -> Value:
    tokens = plan.forecast.kv_tokens if plan else None
    return int(getattr(tokens, end)) if tokens is not None else None


def _classes(plan: Plan | None) -> dict[str, int]:
    """Wanted MiB by scope and class, and what each scope leaves."""
    found: dict[str, int] = {}
    for fit in plan.fits if plan else ():
        for cls, size in sorted(fit.by_class.items()):
            found[f"{fit.where}: {cls}"] = -(-size // MIB)
        if fit.is_known:
            found[f"{fit.where}: left of its budget"] = fit.margin_bytes // MIB
    return found


def _seen(was: Side, now: Side) -> Iterator[Row]:
    one, two = was.verdict, now.verdict
    yield from _pairs_of_numbers("ledger", _figures(one), _figures(two))
    yield Row("verdict", "word", one.word if one else None, two.word if two else None)
    legs, legs_now = _legs(one), _legs(two)
    for name in dict.fromkeys([*legs, *legs_now]):
        yield Row("verdict", f"leg {name}", legs.get(name), legs_now.get(name))
    scores, scores_now = _scores(one), _scores(two)
    for name in dict.fromkeys([*scores, *scores_now]):
        yield Row("verdict", f"prediction {name}", scores.get(name), scores_now.get(name))
    yield from _pairs_of_numbers("throughput", _speeds(one), _speeds(two))


def _pairs_of_numbers(section: Section, was: Mapping[str, Value], now: Mapping[str, Value]) -> Iterator[Row]:
    """A figure that one side does not tell is unknown there, not 0; its unit is in its name."""
    for name in dict.fromkeys([*was, *now]):
        yield Row(section, name, was.get(name), now.get(name))


def _figures(stored: Stored | None) -> dict[str, Value]:
    ledger = stored.ledger if stored is not None else None
    return {name: each.value.best for name, each in sorted(ledger.figures.items())} if ledger else {}


def _legs(stored: Stored | None) -> dict[str, Value]:
    return {leg.id: leg.status for leg in stored.legs} if stored is not None else {}


def _scores(stored: Stored | None) -> dict[str, Value]:
    probe = stored.value.get("probe") if stored is not None else None
    rows = probe.get("predictions") if isinstance(probe, dict) else None
    found = (row for row in rows if isinstance(row, dict)) if isinstance(rows, list) else ()
    return {str(row.get("name")): str(row.get("score")) for row in found}


def _speeds(stored: Stored | None) -> dict[str, Value]:
    legs = [leg for leg in stored.legs if leg.id in _SPEED] if stored is not None else []
    return {f"{leg.id} {name}": value for leg in legs for name, value in leg.numbers.items()}
