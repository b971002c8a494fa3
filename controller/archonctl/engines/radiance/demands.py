"""Classed demands of one declaration: what each card and the host must hold, each figure with its source."""

from __future__ import annotations

from dataclasses import replace

from archonctl.engines.base import CardShare
from archonctl.engines.radiance.memory import Ceiling
from archonctl.engines.radiance.settings import Settings
from archonctl.host.profile import Card
from archonctl.memory.demand import Demand, MemoryClass
from archonctl.memory.interval import MIB, Source
from archonctl.model.rad import RadManifest


def card_demands(
    card: Card | None, ceiling: Ceiling | None, share: CardShare, settings: Settings, arena_mib: float
) -> list[Demand]:
    """Slab, pool, activation arena and driver context of one card; what is unknown is left out, never 0."""
    stated: Source = "config" if settings.era == "pair" else "computed"
    rows: list[Demand] = []
    if share.slab_mib is not None:
        rows.append(_device(share, "weights", share.slab_mib, "static weights and resident experts", stated))
    if share.pool_mib is not None:
        detail = f"KV pool, {settings.slots:,} sequences"
        rows.append(_device(share, "kv_cache", share.pool_mib, detail, stated, dtype=settings.kv_dtype))
    arena = _device(share, "activation", arena_mib, "activation arena", "declared")
    rows.append(replace(arena, low_bytes=_least_arena_bytes(card, ceiling, settings, arena_mib)))
    if context := context_mib(card, ceiling, settings, arena_mib):
        driver = _device(share, "scratchpad", context, "driver context, headroom and staging", "declared")
        rows.append(replace(driver, resident=True))
    return rows


def context_mib(card: Card | None, ceiling: Ceiling | None, settings: Settings, arena_mib: float) -> float:
    """What is consumed outside slab, pool and arena on a card.

    By hand it is ``outside_mib`` less the arena. In the pair era a settle line, where known, says what was
    really held beside slab and pool; it is less than the arena alone on the archon host, so nothing is added.
    """
    if card is None:
        return 0.0
    if settings.era == "pair" and ceiling is not None and ceiling.held_mib is not None:
        return max(0.0, ceiling.held_mib.best - arena_mib)
    return max(0.0, card.outside_mib - arena_mib)


def _least_arena_bytes(card: Card | None, ceiling: Ceiling | None, settings: Settings, arena_mib: float) -> int | None:
    """Pair era with a settle line: what it leaves beside the ceiling, floor included, is all that the arena needs."""
    if settings.era != "pair" or card is None or ceiling is None or ceiling.held_mib is None:
        return None
    return round(min(arena_mib, max(0.0, card.total_mib - ceiling.value.high)) * MIB)


def _device(share: CardShare, cls: MemoryClass, mib: float, detail: str, source: Source, *, dtype: str = "") -> Demand:
    return Demand(cls, "device", dtype, round(mib * MIB), detail, source, share.index)


def host_demands(settings: Settings, manifest: RadManifest) -> list[Demand]:
    """Host memory, all of it pinned; the sum is the pinned-memory floor."""
    rows = [
        _host("offload", settings.host_pool_mib, f"pinned expert pool of rank {rank}", "config")
        for rank in range(settings.tp)
    ]
    rows.append(_host("weights", manifest.host.ngram_table_mib, "n-gram table, once a host", "declared"))
    rows.append(_host("ddr_cache", settings.prefix_mib, "prefix cache: finished conversations", "config"))
    staging = "step staging, max-num-batched-tokens counted 1:1 in MiB"
    rows.append(_host("scratchpad", settings.batched_tokens, staging, "assumed"))
    return [row for row in rows if row.bytes > 0]


def _host(cls: MemoryClass, mib: float, detail: str, source: Source) -> Demand:
    return Demand(cls, "host", "", round(mib * MIB), detail, source, pinned=True)
