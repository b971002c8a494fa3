"""Classed demands against a capacity that may be unknown."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from archonctl.memory.interval import Source

MemoryClass = Literal["weights", "kv_cache", "ddr_cache", "offload", "activation", "scratchpad", "unknown"]
Scope = Literal["device", "host"]
FitVerdict = Literal["fits", "too_big", "unknown"]

HEADROOM = 0.15
"""Share of the available bytes kept free where nothing better is known (the usual figure of such planners)."""


@dataclass(frozen=True, slots=True)
class Demand:
    """Bytes wanted by one class of memory in one scope. ``card`` is the device index; None for the host."""

    cls: MemoryClass
    scope: Scope
    dtype: str
    bytes: int
    detail: str = ""
    source: Source = "computed"
    card: int | None = None


@dataclass(frozen=True, slots=True)
class Capacity:
    """What a scope offers. ``known`` is about ``total_bytes``, ``free_known`` about ``free_bytes``."""

    total_bytes: int = 0
    free_bytes: int = 0
    known: bool = False
    free_known: bool = False


@dataclass(frozen=True, slots=True)
class Fit:
    """The answer for one scope; every figure in bytes."""

    scope: Scope
    verdict: FitVerdict
    want_bytes: int
    budget_bytes: int
    margin_bytes: int
    headroom: float
    by_class: dict[MemoryClass, int]
    reason: str

    @property
    def dominant(self) -> MemoryClass | None:
        """The class that asks for most."""
        return max(self.by_class, key=lambda c: self.by_class[c], default=None)


def fit(demands: Iterable[Demand], scope: Scope, capacity: Capacity, headroom: float = HEADROOM) -> Fit:
    """Judge the demands of one scope.

    Unknown capacity is neither full nor empty: the verdict is "unknown" and the caller proceeds and says so.
    Known free memory already excludes what is resident; unknown free falls back to the total.
    Raises ValueError if ``headroom`` is outside [0, 1).
    """
    if not 0 <= headroom < 1:
        raise ValueError(f"headroom must be in [0, 1), got {headroom}")
    by_class: dict[MemoryClass, int] = {}
    for demand in demands:
        if demand.scope == scope and demand.bytes > 0:
            by_class[demand.cls] = by_class.get(demand.cls, 0) + demand.bytes
    want = sum(by_class.values())
    if not capacity.known and not capacity.free_known:
        return Fit(scope, "unknown", want, 0, 0, headroom, by_class, "capacity is unknown")
    available = capacity.free_bytes if capacity.free_known else capacity.total_bytes
    reason = "judged by free memory" if capacity.free_known else "free memory is unknown, judged by the total"
    budget = int(available * (1 - headroom))
    verdict: FitVerdict = "fits" if want <= budget else "too_big"
    return Fit(scope, verdict, want, budget, budget - want, headroom, by_class, reason)
