"""What solvers and sweeps found, under ``docs/schemas/plan-solve-1.json`` and ``plan-sweep-1.json``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from archonctl.plan.as_json import plan_json
from archonctl.plan.solve import Answer, Solution
from archonctl.plan.sweep import Axis, Point

SOLVE_SCHEMA = "archonctl.plan-solve/1"
SWEEP_SCHEMA = "archonctl.plan-sweep/1"
CAPACITY = ("kv_tokens", "kv_tokens_low", "kv_tokens_high", "source", "sessions", "margin_tokens", "method")


def solution_json(solution: Solution) -> dict[str, Any]:
    """The answers, the changes that make them, and the whole plan of the changed declaration."""
    return {
        "schema": SOLVE_SCHEMA,
        "solve": list(solution.asked),
        "found": bool(solution.answers),
        "answers": [_answer(answer) for answer in solution.answers],
        "set": dict(solution.change),
        "plan": plan_json(solution.plan),
    }


def _answer(answer: Answer) -> dict[str, Any]:
    return {
        "name": answer.name,
        "key": answer.variable.key,
        "value": answer.value,
        "declared": answer.declared,
        "unit": answer.variable.unit or None,
        "wanted": answer.variable.wanted,
        "next": answer.beyond,
        "why_not_next": list(answer.why_not),
    }


def sweep_json(endpoint: str, axes: Sequence[Axis], points: Sequence[Point]) -> dict[str, Any]:
    """One object a point, in the order of the sweep."""
    return {
        "schema": SWEEP_SCHEMA,
        "endpoint": endpoint,
        "keys": [axis.name for axis in axes],
        "points": [_point(axes, point) for point in points],
    }


def _point(axes: Sequence[Axis], point: Point) -> dict[str, Any]:
    values = {axis.name: value for axis, value in zip(axes, point.values, strict=True)}
    solved = {answer.name: answer.value for answer in point.solution.answers} if point.solution else None
    if point.plan is None:
        refused = point.refused
        return {
            "values": values,
            "verdict": "refused",
            "reasons": [refused.message] if refused else [],
            "code": refused.code if refused else None,
            "solved": None,
            "capacity": None,
            "pool_mib": None,
            "slab_mib": None,
            "ttm_floor_mib": None,
        }
    whole = plan_json(point.plan)
    return {
        "values": values,
        "verdict": point.plan.verdict,
        "reasons": whole["reasons"],
        "code": None,
        "solved": solved,
        "capacity": {key: whole["capacity"][key] for key in CAPACITY},
        "pool_mib": least(card["pool_mib"] for card in whole["cards"]),
        "slab_mib": least(card["slab_mib"] for card in whole["cards"]),
        "ttm_floor_mib": whole["host"]["ttm_floor_mib"],
    }


def least(figures: Iterable[float | None]) -> float | None:
    """The smallest of the known figures: the tightest card decides; None where none is known."""
    return min((figure for figure in figures if figure is not None), default=None)
