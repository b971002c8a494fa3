"""A law with its numbers put in: figures that were taken, and formulas over them, term by term.

Terms are data: an engine lists them, a plan presents them, and a test puts the numbers into every formula and compares
what comes out with the value beside it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from archonctl.memory.interval import Interval, Source

Number = int | float


@dataclass(frozen=True, slots=True)
class Term:
    """One quantity. ``formula`` is arithmetic over the names of terms before it; empty for a figure that was taken.

    Beside ``+ - * / //`` a formula has ``min``, ``max``, ``ceil``, ``floor`` (of a number) and ``pad(value, step)``
    (rounded up to a multiple). ``key`` is the declaration key that set a figure, ``origin`` where a figure or a rule
    comes from. ``low`` and ``high`` are the ends where the value is an estimate.
    """

    name: str
    value: Number
    unit: str
    what: str
    formula: str = ""
    source: Source = "computed"
    origin: str = ""
    key: str = ""
    low: Number | None = None
    high: Number | None = None


_NAME = re.compile(r"[a-z_][a-z0-9_]*(?!\s*\()\b", re.IGNORECASE)


def numbers_in(terms: Sequence[Term]) -> dict[str, str]:
    """Each formula with the numbers of its terms put in, by name of the term; digits as a calculator takes them."""
    values = {term.name: _digits(term.value) for term in terms}
    return {
        term.name: _NAME.sub(lambda found: values.get(found[0], found[0]), term.formula)
        for term in terms
        if term.formula
    }


def _digits(value: Number) -> str:
    if not isinstance(value, float):
        return str(value)
    return f"{value:.10g}" if abs(value) < 1e9 and not value.is_integer() else f"{value:.2f}".removesuffix(".00")


class Working:
    """Collects terms in order; a name may be given once."""

    def __init__(self) -> None:
        self._terms: dict[str, Term] = {}

    def take(
        self, name: str, value: Number, unit: str, what: str, source: Source, origin: str = "", *, key: str = ""
    ) -> str:
        """A figure that was read or assumed, or declared where a ``key`` set it; the name again."""
        return self._add(Term(name, value, unit, what, "", "declared" if key else source, origin, key))

    def work(self, name: str, value: Number, unit: str, what: str, formula: str, origin: str = "") -> str:
        """A figure that follows; the name again."""
        return self._add(Term(name, value, unit, what, formula, "computed", origin))

    def estimate(self, name: str, value: Interval, unit: str, what: str, formula: str = "", origin: str = "") -> str:
        """A figure that is known within bounds; the name again."""
        source: Source = "computed" if formula else value.source
        ends = (None, None) if value.is_exact else (value.low, value.high)
        return self._add(Term(name, value.best, unit, what, formula, source, origin, "", *ends))

    def _add(self, term: Term) -> str:
        if term.name in self._terms:
            raise ValueError(f"the term {term.name} is there already")
        self._terms[term.name] = term
        return term.name

    def terms(self) -> tuple[Term, ...]:
        """All of them, in order."""
        return tuple(self._terms.values())
