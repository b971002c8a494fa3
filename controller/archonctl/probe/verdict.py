"""Legs to a verdict, and a verdict to JSON. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from archonctl.probe.predictions import scored_json
from archonctl.probe.values import Leg, Verdict

SCHEMA = "archonctl.probe/1"


def judge(legs: Sequence[Leg], facts: Mapping[str, int | float | str] | None = None) -> Verdict:
    """Any failed leg breaks the contract; else every required leg must have passed; else there is no evidence.

    No legs at all, or no required one, is no evidence either.
    """
    failed = [leg for leg in legs if leg.status == "fail"]
    required = [leg for leg in legs if leg.required]
    open_legs = [leg for leg in required if leg.status != "pass"]
    if failed:
        return Verdict("broken", tuple(legs), tuple(_reason(leg) for leg in failed), dict(facts or {}))
    if open_legs or not required:
        reasons = [_reason(leg) for leg in open_legs if leg.status == "no evidence"]
        skipped = [leg.id for leg in open_legs if leg.status == "skip"]
        if skipped:
            reasons.append(f"not run: {', '.join(skipped)}")
        return Verdict("no evidence", tuple(legs), tuple(reasons or ["nothing was checked"]), dict(facts or {}))
    return Verdict("holds", tuple(legs), (), dict(facts or {}))


def with_leg(verdict: Verdict, leg: Leg) -> Verdict:
    """The verdict with one more leg, after the first: it can only take away from what was said."""
    legs, own = (*verdict.legs[:1], leg, *verdict.legs[1:]), judge([leg])
    if leg.status == "fail":
        return replace(verdict, word="broken", legs=legs, reasons=(*own.reasons, *verdict.reasons))
    if leg.required and leg.status != "pass" and verdict.word != "broken":
        return replace(verdict, word="no evidence", legs=legs, reasons=(*own.reasons, *verdict.reasons))
    return replace(verdict, legs=legs)


def _reason(leg: Leg) -> str:
    return f"{leg.id}: {leg.message}"


def verdict_json(verdict: Verdict, endpoint: str) -> dict[str, Any]:
    """The verdict on an endpoint under its published schema, ``docs/schemas/probe-1.json``."""
    return {
        "schema": SCHEMA,
        "endpoint": endpoint,
        "verdict": verdict.word,
        "legs": [leg_json(leg) for leg in verdict.legs],
        "reasons": list(verdict.reasons),
        "facts": dict(verdict.facts),
        "predictions": [scored_json(each) for each in verdict.predictions],
    }


def leg_json(leg: Leg) -> dict[str, Any]:
    """One leg under the same schema. Texts that there is nothing to say for are null, never empty."""
    said = _null({**asdict(leg), "proof": [], "observed": None})
    proof = [_null(asdict(each)) for each in leg.proof]
    return {**said, "seconds": round(leg.seconds, 3), "proof": proof, "observed": dict(leg.observed) or None}


def _null(value: Mapping[str, Any]) -> dict[str, Any]:
    return {name: None if each == "" else each for name, each in value.items()}
