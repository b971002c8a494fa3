"""Legs, evidence and verdict of a probe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

LegStatus = Literal["pass", "fail", "skip", "no evidence"]
VerdictWord = Literal["holds", "broken", "no evidence"]
Depth = Literal["ledger", "admission", "full"]
"""How deep to look: the boot log only; full-height requests admitted; held at once until all are answered."""


ProofKind = Literal["log", "http", "metrics", "process", "certificate"]
Figure = int | float | str
Score = Literal["hit", "falsified", "too rounded", "not measured"]


@dataclass(frozen=True, slots=True)
class Proof:
    """What a claim rests on: a log line, an answer, a counter, a process. ``text`` is an excerpt without secrets.

    ``where`` is the log's file or unit, or "GET /path". Of a log line: its number, and its byte offset in the file or
    its cursor in the journal, where they were looked up. Of an answer: its HTTP status. ``times``: how often alike.
    """

    kind: ProofKind
    where: str
    text: str
    line: int | None = None
    offset_bytes: int | None = None
    cursor: str = ""
    status: int | None = None
    times: int = 1


@dataclass(frozen=True, slots=True)
class Scored:
    """One prediction after the boot. ``actual`` is None where nothing was measured; ``why`` says so then.

    ``low`` and ``high`` are the ends of a rounded figure; a band is judged by both.
    """

    name: str
    expect: float
    band: float
    score: Score
    unit: str = ""
    actual: float | None = None
    low: float | None = None
    high: float | None = None
    why: str = ""

    @property
    def off(self) -> float | None:
        """By how much it was off, as a share of what was expected; None where that cannot be told."""
        return None if self.actual is None or not self.expect else self.actual / self.expect - 1


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
    numbers: Mapping[str, Figure] = field(default_factory=dict)
    """Figures that this leg measured; units in the names."""
    proof: tuple[Proof, ...] = ()
    observed: Mapping[str, object] = field(default_factory=dict)
    """What was seen, as plain JSON values, where the status follows from it alone: it can be judged again later."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The product's word. "holds" needs every required leg to pass; a failed leg breaks it; else no evidence."""

    word: VerdictWord
    legs: tuple[Leg, ...]
    reasons: tuple[str, ...] = ()
    facts: dict[str, int | float | str] = field(default_factory=dict)
    predictions: tuple[Scored, ...] = ()
    """What was foretold of this change, scored. A falsified one says nothing of the contract."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a running leg stands. Tokens are prompt and answer tokens together."""

    leg: str
    done_tokens: int
    total_tokens: int
    text: str = ""
    left_s: float | None = None
    """Seconds that are left by the pace so far; None where it cannot be told."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What a probe, or one leg of it, will ask of the engine at most and without retries: told before it runs."""

    tokens: int
    requests: int
    leg: str = ""


@dataclass(frozen=True, slots=True)
class Extras:
    """Legs that run only if asked for, and how to go about live traffic.

    ``when_idle``: wait until nobody else uses the engine, and give up the moment that somebody comes.
    """

    recall: bool = False
    interference: bool = False
    when_idle: bool = False
