"""RAM and cards of a host as something that demands are fitted into."""

from __future__ import annotations

from collections.abc import Iterable

from archonctl.host.profile import Card, Host
from archonctl.memory.demand import Capacity, Demand
from archonctl.memory.interval import MIB


def host_capacity(host: Host) -> Capacity:
    """RAM as the engine may use it: the smallest of what the kernel, the control group and huge pages leave.

    The total is RAM less huge pages, or the control group's limit; free is MemAvailable (which has no huge pages in
    it), or what the group has left. A figure that is not known is left out and never counts as 0; without any total
    the capacity is unknown. What may be locked binds only demands that are pinned, and only where a profile states it:
    a limit that was read is that of the reader, and a unit of this project lifts it for an engine that pins.
    """
    ram = None if host.ram_mib is None else max(0, host.ram_mib - (host.hugepages_mib or 0))
    totals = [mib for mib in (ram, host.cgroup_limit_mib) if mib is not None]
    lockable = host.memlock_mib if host.source == "declared" else None
    free = [mib for mib in (host.available_mib, host.cgroup_free_mib, *totals) if mib is not None]
    return Capacity(
        total_bytes=min(totals, default=0) * MIB,
        free_bytes=min(free, default=0) * MIB,
        known=bool(totals),
        free_known=host.available_mib is not None,
        lockable_bytes=lockable * MIB if isinstance(lockable, int) else None,
    )


def card_capacity(card: Card) -> Capacity:
    """One card: its total and what is free now, each less the reserve that is kept by hand.

    A settle line says what an engine really left, so it replaces the reserve. What the profile calls consumed outside
    is a demand, not less of a card: see ``outside_demands``.
    """
    reserve = card.reserve_mib if card.settle is None else 0
    total = max(0, card.total_mib - reserve)
    free = None if card.free_mib is None else max(0, min(card.free_mib, card.total_mib) - reserve)
    return Capacity(total * MIB, (free or 0) * MIB, known=True, free_known=free is not None)


def outside_demands(cards: Iterable[Card]) -> tuple[Demand, ...]:
    """What the host profile says is consumed on each card beside an engine; already missing from what is free."""
    what = "consumed beside the engine, by the host profile"
    return tuple(
        Demand("unknown", "device", "", card.outside_mib * MIB, what, "declared", card.index, resident=True)
        for card in cards
        if card.outside_mib
    )
