"""Puts the numbers into the formulas of a working."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from archonctl.engines.terms import Term

_FUNCTIONS = {
    "min": min,
    "max": max,
    "ceil": math.ceil,
    "floor": math.floor,
    "round": round,
    "pad": lambda value, step: -(-value // step) * step,
}


def comes_to(formula: str, values: dict[str, float]) -> float:
    """The value of a formula; NameError where it uses a term that is not there."""
    result: float = eval(formula, {"__builtins__": {}, **_FUNCTIONS}, dict(values))
    return result


def check(terms: Sequence[Term]) -> dict[str, Term]:
    """Every formula comes to its value from terms before it, and every figure says where it is from; terms by name."""
    values: dict[str, float] = {}
    for term in terms:
        assert term.name.isidentifier()
        assert term.what
        if term.formula:
            assert comes_to(term.formula, values) == pytest.approx(term.value, rel=1e-12), term
        else:
            assert term.key or term.origin, f"{term.name} comes from nowhere"
        if term.low is not None and term.high is not None:
            assert term.low <= term.value <= term.high
        values[term.name] = term.value
    return {term.name: term for term in terms}
