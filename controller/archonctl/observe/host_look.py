"""What the kernel and the drivers say of this machine's memory now."""

from __future__ import annotations

from pathlib import Path

from archonctl.host.detect import detect_host
from archonctl.host.kernel_files import Reader
from archonctl.host.profile import Card
from archonctl.memory.interval import MIB
from archonctl.observe.values import Sample, sample

_KINDS = {"MemTotal": "total", "MemAvailable": "available", "Mlocked": "locked", "Unevictable": "unevictable"}


def host_look(root: Path = Path("/")) -> list[Sample]:
    """RAM, the TTM limit and every card. Raises nothing: what is unknown has no sample."""
    host, samples = detect_host(root), []
    if host.ttm_pages_limit is not None:
        samples.append(sample("archon_ttm_limit_bytes", value=host.ttm_pages_limit * host.page_bytes))
    for line in (Reader(root).text("/proc/meminfo") or "").splitlines():
        key, _, rest = line.partition(":")
        number = rest.split()[:1]
        if (kind := _KINDS.get(key)) and number and number[0].isdigit():
            samples.append(sample("archon_host_memory_bytes", kind, value=int(number[0]) * 1024))
    for card in host.cards:
        samples += _card(card)
    return samples


def _card(card: Card) -> list[Sample]:
    figures = (
        ("archon_gpu_memory_bytes", card.total_mib, card.free_mib),
        ("archon_gtt_bytes", card.gtt_mib, card.gtt_free_mib),
    )
    samples: list[Sample] = []
    for name, total, free in figures:
        if total is None:
            continue
        samples.append(sample(name, card.index, "total", value=total * MIB))
        if free is not None:
            samples.append(sample(name, card.index, "used", value=(total - free) * MIB))
    return samples
