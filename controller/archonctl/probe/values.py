"""Legs, evidence and verdict of a probe."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

LegStatus = Literal["pass", "fail", "skip", "no evidence"]
VerdictWord = Literal["holds", "broken", "no evidence"]


@dataclass(frozen=True, slots=True)
class Leg:
    """One check. ``message`` holds both numbers; ``evidence`` an excerpt (log line or HTTP answer, no secrets)."""

    id: str
    status: LegStatus
    message: str
    code: str = ""
    expected: str = ""
    actual: str = ""
    seconds: float = 0.0
    evidence: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The product's word. "holds" needs every required leg to pass; a failed leg breaks it; else no evidence."""

    word: VerdictWord
    legs: tuple[Leg, ...]
    reasons: tuple[str, ...] = ()
    facts: dict[str, int | float | str] = field(default_factory=dict)
