"""The rest of a card and of the host: ceilings, pinned memory, all-reduce rows. Pure functions, MiB in and out."""

from __future__ import annotations

import math
from dataclasses import dataclass

from archonctl.host.profile import Card, Settle
from archonctl.memory.interval import MIB, Interval
from archonctl.model.rad import Hidden


@dataclass(frozen=True, slots=True)
class Ceiling:
    """What slab and pool together may take on one card, in MiB.

    ``value`` is the figure to use; ``hand_mib`` is card - outside - reserve. ``settle_free_mib`` and
    ``held_mib`` exist only where the engine's settle line is known: what was free at its ceiling, and what was
    neither free nor slab nor pool.
    """

    value: Interval
    hand_mib: float
    at_ceiling_mib: float | None = None
    floor_mib: float | None = None
    settle_free_mib: Interval | None = None
    held_mib: Interval | None = None

    def free_mib(self, slab_mib: float, pool_mib: float) -> Interval | None:
        """What a pair leaves free on the card (drivers' view), by the settle line; None without one."""
        if self.settle_free_mib is None or self.at_ceiling_mib is None:
            return None
        return shifted(self.settle_free_mib, self.at_ceiling_mib - slab_mib - pool_mib)


def shifted(value: Interval, by: float) -> Interval:
    """``value + by`` with the same width."""
    return Interval(value.low + by, value.best + by, value.high + by, value.source)


def hand_ceiling_mib(card: Card) -> float:
    """Card - what is consumed outside both budgets - a reserve kept by hand.

    On the archon host 31,856 - 1,710 - 1,024 = 29,122; the change log rounds it to 29,120, which is also the
    sum of the pairs that shipped under it.
    """
    return float(card.total_mib - card.outside_mib - card.reserve_mib)


def settle_free_mib(settle: Settle) -> Interval:
    """The settle line's free memory in MiB; "2.01 GiB" carries 5 MiB of rounding either way."""
    return Interval.rounded(settle.free_gib, scale=1024)


def ceiling_mib(card: Card) -> Ceiling:
    """The ceiling of one card: by the settle line where there is one (evidence), else by hand.

    The settle line says what stayed free while the ceiling of that day was in force, and the floor that the
    engine itself keeps. What is above the floor is claimable: ceiling = at_ceiling + free - floor.
    """
    hand = hand_ceiling_mib(card)
    if card.settle is None:
        return Ceiling(Interval.exact(hand, "declared"), hand)
    free, settle = settle_free_mib(card.settle), card.settle
    rest = card.total_mib - settle.at_ceiling_mib
    held = Interval(rest - free.high, rest - free.best, rest - free.low)
    value = shifted(free, settle.at_ceiling_mib - settle.floor_mib)
    return Ceiling(value, hand, settle.at_ceiling_mib, settle.floor_mib, free, held)


def ttm_floor_mib(ranks: int, host_pool_mib: int, table_mib: float, prefix_mib: int, batched_tokens: int) -> int:
    """Pinned memory that the kernel's TTM limit must allow, in MiB, rounded up.

    ``ranks x host_pool + n-gram table + prefix cache + max_num_batched_tokens``; the last term is counted
    1:1 in MiB. Source: pinned-memory ledger of the archon host (150,200 MiB with 45,568 MiB of host pool).
    """
    return math.ceil(ranks * host_pool_mib + table_mib + prefix_mib + batched_tokens)


def pages(mib: int, page_bytes: int) -> int:
    """MiB as kernel pages, rounded up (256 pages of 4 KiB a MiB)."""
    return -(-mib * MIB // page_bytes)


def allreduce_rows(seqs: int, depth: int) -> int:
    """Rows of one decode step's all-reduce: every sequence brings its token and ``depth`` drafted ones."""
    return seqs * (1 + depth)


def exact_rows(hidden: Hidden, wire_min_kib: int) -> int:
    """Most rows whose message stays under the size at which the compressed wire begins (exact up to there).

    25 for hidden 2560 in bf16 and the default of 128 KiB. Source: radiance 1.0.5, ``--tp-wire-min-kb``.
    """
    return -(-wire_min_kib * 1024 // (hidden.size * hidden.bytes_per_element)) - 1
