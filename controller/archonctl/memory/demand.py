"""Classed demands against capacities that may be unknown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from archonctl.findings import Finding
from archonctl.memory.interval import MIB, Source

MemoryClass = Literal["weights", "kv_cache", "ddr_cache", "offload", "activation", "scratchpad", "unknown"]
Scope = Literal["device", "host"]
FitVerdict = Literal["fits", "too_big", "unknown"]

HEADROOM = 0.15
"""Share of the available bytes kept free where nothing better is known (the usual figure of such planners)."""


@dataclass(frozen=True, slots=True)
class Demand:
    """Bytes wanted by one class of memory in one scope. ``card`` is the device index; None: each card, or the host.

    ``droppable`` bytes are mapped from a file: the kernel may let go of some and read them again.
    ``resident`` bytes are loaded already, so they are missing from what is free now. ``pinned`` bytes are locked in
    RAM and count against RLIMIT_MEMLOCK too.
    """

    cls: MemoryClass
    scope: Scope
    dtype: str
    bytes: int
    detail: str = ""
    source: Source = "computed"
    card: int | None = None
    low_bytes: int | None = None
    high_bytes: int | None = None
    """The ends, where ``bytes`` is an estimate; None where it is exact."""
    resident: bool = False
    pinned: bool = False
    droppable: bool = False


@dataclass(frozen=True, slots=True)
class Capacity:
    """What a scope offers. ``known`` is about ``total_bytes``, ``free_known`` about ``free_bytes``.

    ``lockable_bytes`` bounds the pinned demands; None where no limit binds or none is known. ``ceiling_bytes`` is the
    most that an engine takes of it by a rule of its own; what it leaves is the headroom then.
    """

    total_bytes: int = 0
    free_bytes: int = 0
    known: bool = False
    free_known: bool = False
    lockable_bytes: int | None = None
    ceiling_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Fit:
    """The answer for one scope; every figure in bytes. ``card`` is set where the scope is one device of several.

    ``want_bytes`` is the best estimate and ``margin_bytes`` what the budget leaves of it; the demands' own ends add up
    to ``want_low_bytes`` and ``want_high_bytes``. Where the budget lies between the low end and the best estimate, the
    verdict is "unknown" although the capacity ``is_known``.
    """

    scope: Scope
    verdict: FitVerdict
    want_bytes: int
    budget_bytes: int
    margin_bytes: int
    headroom: float
    by_class: dict[MemoryClass, int]
    reason: str
    card: int | None = None
    want_low_bytes: int = 0
    want_high_bytes: int = 0
    is_known: bool = True

    @property
    def dominant(self) -> MemoryClass | None:
        """The class that asks for most."""
        return max(self.by_class, key=lambda c: self.by_class[c], default=None)

    @property
    def allows(self) -> bool:
        """True if nothing that is known speaks against it."""
        return self.verdict == "fits" or not self.is_known

    @property
    def where(self) -> str:
        """The scope in words."""
        return f"{self.scope} memory" if self.card is None else f"memory of card {self.card}"

    @property
    def finding(self) -> Finding | None:
        """The refusal ``memory-short``, the warning ``memory-unknown``; None where it fits or nothing is wanted."""
        if self.verdict == "fits" or not self.want_bytes:
            return None
        if not self.is_known:
            message = f"{self.where} is not known, so {_mib_up(self.want_bytes):,} MiB were not checked against it"
            return Finding("memory-unknown", "warning", message, fix="name a host profile, or [host] detect = true")
        message = (
            f"{self.where}: {_mib_up(self.want_bytes):,} MiB wanted, {self.budget_bytes // MIB:,} MiB may be used "
            f"({self.reason}, {self.headroom:.0%} kept free), {_mib_up(-self.margin_bytes):,} MiB short; "
            f"{self.dominant} asks for most"
        )
        classes = ", ".join(f"{cls} {_mib_up(size):,}" for cls, size in sorted(self.by_class.items(), key=_largest))
        if self.verdict == "unknown":
            message += f"; the estimate begins at {_mib_up(self.want_low_bytes):,} MiB, so it may fit"
            if self.want_low_bytes > self.budget_bytes:
                message += " where nothing is kept free, and read the file again and again"
            return Finding("memory-unknown", "warning", message, fix=f"MiB by class: {classes}")
        return Finding("memory-short", "error", message, fix=f"MiB by class: {classes}")


def fit(
    demands: Iterable[Demand], scope: Scope, capacity: Capacity, headroom: float = HEADROOM, card: int | None = None
) -> Fit:
    """Judge the demands of one scope, or of one card of it.

    Unknown capacity is neither full nor empty: the verdict is "unknown" and the caller proceeds and says so.
    Free memory that is known already lacks what is resident, so resident demands are not counted again; where it is
    unknown the total is the measure, and they are. Pinned demands must also fit into what may be locked. It is too big
    only where the low ends of the demands are, and fits only where their best estimates do. What is droppable may be
    where headroom was to be kept: then it may fit, and may be slow.
    Raises ValueError if ``headroom`` is outside [0, 1), or for a demand of fewer than 0 bytes.
    """
    if not 0 <= headroom < 1:
        raise ValueError(f"headroom must be in [0, 1), got {headroom}")
    mine = [d for d in demands if d.scope == scope and (card is None or d.card in (None, card))]
    if wrong := next((d for d in mine if d.bytes < 0), None):
        raise ValueError(f"a demand of {wrong.bytes} bytes ({wrong.cls}) is no demand")
    counted = [d for d in mine if d.bytes and not (d.resident and capacity.free_known)]
    if short := _unlockable(counted, capacity.lockable_bytes):
        reason = "locked memory, judged by the limit of it"
        return _judged(short, scope, card, capacity.lockable_bytes or 0, 0.0, reason)
    if not capacity.known and not capacity.free_known:
        unknown = _judged(counted, scope, card, 0, headroom, "capacity is unknown")
        return replace(unknown, verdict="unknown", margin_bytes=0, is_known=False)
    available = capacity.free_bytes if capacity.free_known else capacity.total_bytes
    reason = "judged by free memory" if capacity.free_known else "free memory is unknown, judged by the total"
    if capacity.ceiling_bytes is None:
        budget = int(available * (1 - headroom))
        return _judged(counted, scope, card, budget, headroom, reason, available - budget)
    budget = min(available, capacity.ceiling_bytes)
    kept = 1 - budget / available if available else 0.0
    reason = reason if budget < capacity.ceiling_bytes else "the engine's own share of it"
    return _judged(counted, scope, card, budget, round(kept, 6), reason)


def _judged(
    counted: Sequence[Demand], scope: Scope, card: int | None, budget: int, headroom: float, reason: str, kept: int = 0
) -> Fit:
    """``kept`` are the bytes of the headroom."""
    by_class = _by_class(counted)
    want = sum(by_class.values())
    low = sum(d.bytes if d.low_bytes is None else min(d.bytes, d.low_bytes) for d in counted)
    high = sum(d.bytes if d.high_bytes is None else max(d.bytes, d.high_bytes) for d in counted)
    least = low - min(kept, sum(d.bytes for d in counted if d.droppable))
    verdict: FitVerdict = "fits" if want <= budget else "too_big" if least > budget else "unknown"
    return Fit(scope, verdict, want, budget, budget - want, headroom, by_class, reason, card, low, high)


def fit_scopes(
    demands: Iterable[Demand],
    host: Capacity,
    cards: Mapping[int, Capacity],
    headroom: float = HEADROOM,
    device_headroom: float = HEADROOM,
) -> tuple[Fit, ...]:
    """The host's fit, then one for every card: those that are there, and those that only a demand names (unknown).

    Where no card is there at all, what is asked of each of them is one unknown fit.
    """
    asked = tuple(demands)
    named = sorted({*cards, *(d.card for d in asked if d.scope == "device" and d.card is not None)})
    devices = [fit(asked, "device", cards.get(index, Capacity()), device_headroom, index) for index in named]
    if not named and any(d.scope == "device" for d in asked):
        devices = [fit(asked, "device", Capacity(), device_headroom)]
    return (fit(asked, "host", host, headroom), *devices)


def _unlockable(demands: Iterable[Demand], lockable_bytes: int | None) -> list[Demand]:
    """The pinned demands, if they are more than may be locked."""
    pinned = [d for d in demands if d.pinned]
    return pinned if lockable_bytes is not None and sum(d.bytes for d in pinned) > lockable_bytes else []


def _by_class(demands: Iterable[Demand]) -> dict[MemoryClass, int]:
    sums: dict[MemoryClass, int] = {}
    for demand in demands:
        sums[demand.cls] = sums.get(demand.cls, 0) + demand.bytes
    return sums


def _largest(item: tuple[MemoryClass, int]) -> tuple[int, str]:
    return -item[1], item[0]


def _mib_up(size: int) -> int:
    return -(-size // MIB)
