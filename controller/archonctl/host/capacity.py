"""RAM of a host as something that demands are fitted into."""

from __future__ import annotations

from archonctl.host.profile import Host
from archonctl.memory.demand import Capacity
from archonctl.memory.interval import MIB


def host_capacity(host: Host) -> Capacity:
    """RAM as the engine may use it: the smallest of total, available and the cgroup's limit.

    A figure that is not known is left out and never counts as 0; without any total the capacity is unknown.
    """
    totals = [mib for mib in (host.ram_mib, host.cgroup_limit_mib) if mib is not None]
    free = [mib for mib in (host.available_mib, host.cgroup_limit_mib) if mib is not None]
    return Capacity(
        total_bytes=min(totals, default=0) * MIB,
        free_bytes=min(free, default=0) * MIB,
        known=bool(totals),
        free_known=host.available_mib is not None,
    )
