"""RAM and cards of a host as something that demands are fitted into."""

from __future__ import annotations

from archonctl.host.profile import Card, Host
from archonctl.memory.demand import Capacity
from archonctl.memory.interval import MIB


def host_capacity(host: Host) -> Capacity:
    """RAM as the engine may use it: the smallest of what the kernel, the control group and huge pages leave.

    The total is RAM less huge pages, or the control group's limit; free is MemAvailable (which has no huge pages in
    it), or what the group has left. A figure that is not known is left out and never counts as 0; without any total
    the capacity is unknown. What may be locked binds only demands that are pinned.
    """
    ram = None if host.ram_mib is None else max(0, host.ram_mib - (host.hugepages_mib or 0))
    totals = [mib for mib in (ram, host.cgroup_limit_mib) if mib is not None]
    free = [mib for mib in (host.available_mib, host.cgroup_free_mib, *totals) if mib is not None]
    return Capacity(
        total_bytes=min(totals, default=0) * MIB,
        free_bytes=min(free, default=0) * MIB,
        known=bool(totals),
        free_known=host.available_mib is not None,
        lockable_bytes=host.memlock_mib * MIB if isinstance(host.memlock_mib, int) else None,
    )


def card_capacity(card: Card) -> Capacity:
    """One card: its total, less what is consumed outside of any budget and kept by hand; and what is free now."""
    total = max(0, card.total_mib - card.outside_mib - card.reserve_mib)
    free = min(card.free_mib, total) if card.free_mib is not None else 0
    return Capacity(total * MIB, free * MIB, known=True, free_known=card.free_mib is not None)
