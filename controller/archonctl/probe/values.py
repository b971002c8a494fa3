"""Legs, evidence and verdict of a probe."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

LegStatus = Literal["pass", "fail", "skip", "no evidence"]
VerdictWord = Literal["holds", "broken", "no evidence"]
Depth = Literal["ledger", "admission", "full"]
"""How deep to look: the boot log only; full-height requests admitted; held at once until all are answered."""


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
    required: bool = True
    """False for a leg without which the contract can still be said to hold. Its failure counts all the same."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The product's word. "holds" needs every required leg to pass; a failed leg breaks it; else no evidence."""

    word: VerdictWord
    legs: tuple[Leg, ...]
    reasons: tuple[str, ...] = ()
    facts: dict[str, int | float | str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a running leg stands. Tokens are prompt and answer tokens together."""

    leg: str
    done_tokens: int
    total_tokens: int
    text: str = ""


@dataclass(frozen=True, slots=True)
class Cost:
    """What a probe will ask of the engine, at most and without retries: told before it runs."""

    tokens: int
    requests: int
