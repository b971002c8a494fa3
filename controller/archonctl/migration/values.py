"""A proposed migration as a value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from archonctl.deployment.schema import KnobValue
from archonctl.plan.values import PlanVerdict

Action = Literal["version", "drop", "rename", "add", "set", "default", "you", "notice", "boot"]
"""``drop``, ``rename``, ``add`` and ``set`` change the text; ``default`` is a knob that is not declared and now means
something else; ``you`` is left to a person; ``boot`` is a seen boot that was taken over."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step. ``key`` is dotted as in the declaration; values are None where there is none."""

    action: Action
    key: str
    why: str
    before: KnobValue | None = None
    after: KnobValue | None = None
    renamed_to: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a plan says of one declaration. ``verdict`` is None, with ``reasons``, where it cannot be planned at all.

    ``kv_tokens`` are low, best and high; ``sessions`` how many conversations of the promised length the best is.
    """

    version: str
    verdict: PlanVerdict | None
    kv_tokens: tuple[int, int, int] | None
    sessions: float | None
    ttm_floor_mib: int | None
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Proposal:
    """The new declaration, and the contract three times: as it is, moved without a lever, and as proposed."""

    endpoint: str
    path: str
    engine: str
    before_version: str
    after_version: str
    steps: tuple[Step, ...]
    text: str
    before: Outcome
    moved: Outcome
    proposed: Outcome
    contract: Mapping[str, int]
    """``seqs``, ``len`` and ``tokens_with_margin``: the promise is the same in all three."""
