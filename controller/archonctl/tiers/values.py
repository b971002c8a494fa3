"""What placement speaks of: tiers, conversations, decisions and the ordered steps that carry them out."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum

HIGH_WATER = 0.80
"""Share of a tier's capacity above which a sweep begins, where nothing better is declared (the customary default)."""


class Action(StrEnum):
    """What becomes of one conversation."""

    KEEP = "keep"
    PROMOTE = "promote"
    DEMOTE = "demote"
    """To a colder tier that is memory."""
    SPILL = "spill"
    """To a colder tier that is storage, here or elsewhere."""
    COMPRESS_DEMOTE = "compress_demote"
    """To a colder tier, in fewer bytes that are known to serve as well."""
    EVICT = "evict"


class Reason(StrEnum):
    """Why; a closed set, so that it may be a label of a metric."""

    UNDER_MARK = "under_mark"
    RELIEVED_BY_OTHERS = "relieved_by_others"
    IN_USE = "in_use"
    UNKNOWN_SIZE = "unknown_size"
    UNKNOWN_CAPACITY = "unknown_capacity"
    UNKNOWN_RECOMPUTE = "unknown_recompute"
    UNKNOWN_TARGET = "unknown_target"
    STAGING_FAILED = "staging_failed"
    """Said by who carries a decision out: the colder copy could not be made or verified, so the live one stays."""
    REUSE_AND_ROOM = "reuse_and_room"
    RETAIN_CHEAPER = "retain_cheaper"
    DISPLACES_COLDER = "displaces_colder"
    """Retaining is cheaper, and what is reused less made room for it."""
    ONLY_COMPRESSED_FITS = "only_compressed_fits"
    ONLY_COMPRESSED_CHEAPER = "only_compressed_cheaper"
    RECOMPUTE_CHEAPER = "recompute_cheaper"
    NO_ROOM = "no_room"
    NO_COLDER_TIER = "no_colder_tier"


class StepKind(StrEnum):
    """What is done, in this order for one move; a failed stage or verify ends the move with the live copy in place."""

    STAGE = "stage"
    VERIFY = "verify"
    DROP = "drop"


@dataclass(frozen=True, slots=True)
class Tier:
    """A place for KV cache. What is not known is ``None``: nothing is moved on the strength of it."""

    name: str
    is_memory: bool
    """Memory, to which is demoted; else storage, to which is spilled."""
    capacity_bytes: int | None
    bandwidth_bytes_per_s: float | None
    latency_s: float | None
    other_bytes: int = 0
    """What lies there and is not for us to move."""
    places: int | None = None
    """The most conversations that fit whatever their size (an engine's slots); ``None``: no such limit."""
    source: str = ""
    high_water: float | None = None
    """A mark of its own; ``None``: the board's."""

    def transfer_s(self, size_bytes: int) -> float | None:
        """Seconds for one way, ``size / bandwidth + latency``; ``None`` where a figure is unknown."""
        if self.bandwidth_bytes_per_s is None or self.latency_s is None or not self.bandwidth_bytes_per_s > 0:
            return None
        return size_bytes / self.bandwidth_bytes_per_s + self.latency_s

    def round_trip_s(self, size_bytes: int) -> float | None:
        """Seconds there now and back at the next use: both are paid for by retaining, neither by evicting."""
        one_way = self.transfer_s(size_bytes)
        return None if one_way is None else 2 * one_way


@dataclass(frozen=True, slots=True)
class Item:
    """The KV cache of one conversation or prefix."""

    id: str
    tier: str
    bytes: int | None
    tokens: int | None
    expected_uses: float
    """How often it is expected to be used again; only the order matters (see ``policy.expected_uses``)."""
    idle_s: float = 0.0
    """Seconds since its last use; orders those with equal ``expected_uses``."""
    in_use: bool = False
    """A request works on it now: it is not moved."""
    compressed_bytes: int | None = None
    """Its size in a form that is known to serve as well; ``None``: there is none."""


@dataclass(frozen=True, slots=True)
class Board:
    """Everything a decision looks at. ``tiers`` go from the hottest to the coldest.

    Raises ValueError for two tiers or two items of one name, an item in no tier, a negative size.
    """

    tiers: tuple[Tier, ...]
    items: tuple[Item, ...]
    prefill_s_per_token: float | None
    high_water: float = HIGH_WATER

    def __post_init__(self) -> None:
        names = [tier.name for tier in self.tiers]
        if len(set(names)) != len(names) or len({item.id for item in self.items}) != len(self.items):
            raise ValueError("a tier or an item is there twice")
        for item in self.items:
            if item.tier not in names:
                raise ValueError(f"{item.id} is in {item.tier!r}, which is no tier")
            if min(item.bytes or 0, item.tokens or 0, item.compressed_bytes or 0) < 0:
                raise ValueError(f"{item.id} has a negative size")

    def tier(self, name: str) -> Tier:
        """The tier of that name. Raises ValueError where there is none."""
        for tier in self.tiers:
            if tier.name == name:
                return tier
        raise ValueError(f"no tier {name!r}")

    def colder(self, name: str) -> tuple[Tier, ...]:
        """The tiers below one, nearest first."""
        return self.tiers[self.tiers.index(self.tier(name)) + 1 :]

    def mark(self, tier: Tier) -> float:
        """The share of a tier's capacity above which it is relieved."""
        return high_water(self.high_water if tier.high_water is None else tier.high_water)

    def used_bytes(self, name: str) -> int:
        """Everything that is known to lie in a tier."""
        return self.tier(name).other_bytes + sum(item.bytes or 0 for item in self.items if item.tier == name)

    def recompute_s(self, item: Item) -> float | None:
        """Seconds that prefilling it again would take; ``None`` where that is unknown."""
        if item.tokens is None or self.prefill_s_per_token is None:
            return None
        return item.tokens * self.prefill_s_per_token


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to do. ``tier`` is where: of the new copy for stage and verify, of the old one for drop."""

    kind: StepKind
    item: str
    tier: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Decision:
    """What becomes of one item, and the figures that say so."""

    item: Item
    action: Action
    reason: Reason
    to_tier: str | None = None
    """Where it lies afterwards; ``None``: nowhere."""
    bytes_after: int | None = None
    recompute_s: float | None = None
    round_trip_s: dict[str, float | None] = field(default_factory=dict)
    """Seconds there and back by colder tier, of the exact copy."""

    @property
    def moves(self) -> bool:
        """True if it has steps."""
        return self.action is not Action.KEEP

    @property
    def steps(self) -> tuple[Step, ...]:
        """Stage, verify, then drop; an eviction only drops."""
        size = self.item.bytes or 0
        drop = Step(StepKind.DROP, self.item.id, self.item.tier, size)
        if not self.moves:
            return ()
        if self.to_tier is None:
            return (drop,)
        after = size if self.bytes_after is None else self.bytes_after
        staged = (Step(kind, self.item.id, self.to_tier, after) for kind in (StepKind.STAGE, StepKind.VERIFY))
        return (*staged, drop)


@dataclass(frozen=True, slots=True)
class Placement:
    """The decisions of one look: the moves in the order in which they must be carried out, and one row an item."""

    decisions: tuple[Decision, ...]
    """One an item: the moves first, in order, then what is kept. Where a move fails, look again before the next: it
    may have counted on the room."""
    pressed: tuple[str, ...] = ()
    """Tiers that stay above their target whatever is moved: unknown figures, or everything is in use."""

    @property
    def moves(self) -> tuple[Decision, ...]:
        """What is to be carried out, in order: each finds the room that those before it made."""
        return tuple(each for each in self.decisions if each.moves)

    @property
    def steps(self) -> tuple[Step, ...]:
        """All steps in order."""
        return tuple(step for each in self.moves for step in each.steps)

    def of(self, item_id: str) -> Decision:
        """The decision about one item. Raises ValueError where there is none."""
        for each in self.decisions:
            if each.item.id == item_id:
                return each
        raise ValueError(f"no item {item_id!r}")


def high_water(value: object) -> float:
    """The share in (0, 1] that was declared, or the default for anything else: a typing error disables nothing."""
    try:
        share = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return HIGH_WATER
    return share if math.isfinite(share) and 0 < share <= 1 else HIGH_WATER
