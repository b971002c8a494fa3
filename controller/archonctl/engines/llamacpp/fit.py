"""What ``--fit`` makes of ``--ctx-size 0``: the context that memory has room for (common/fit.cpp of b11434, step 2).

The engine measures at the whole context and at the smallest, and takes the straight line between them. The compute
buffer is an estimate here, so the context comes as an interval.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from archonctl.memory.interval import MIB, Interval

Used = Callable[[int], Interval]
"""Bytes wanted on all devices together (or in RAM without any) at a context."""


def fitted_context(
    used: Used, room_bytes: float, margins_mib: Sequence[int], most: int, least: int, streams: int
) -> Interval:
    """The context in tokens: ``most`` if all of it leaves the margins free, else what does, never below ``least``."""
    full = used(most)
    target = room_bytes - sum(margins_mib) * MIB
    if full.high <= target or most <= least:
        return Interval.exact(most)
    small = used(least)
    ends = ((full.high, small.high), (full.best, small.best), (full.low, small.low))
    low, best, high = (_at(whole, part, target, most, least, streams) for whole, part in ends)
    return Interval(min(low, best), best, max(best, high), "assumed")


def _at(full: float, small: float, target: float, most: int, least: int, streams: int) -> int:
    if full <= target:
        return most
    if target <= small:
        return least
    context = least + int((most - least) * (target - small) / (full - small))
    return max(context - context % (256 * streams), least)
