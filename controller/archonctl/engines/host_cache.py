"""Caches that an engine keeps beside its KV pool for conversations that are not at work: in RAM, or on a disk."""

from __future__ import annotations

import functools
import json
import math
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Literal

from archonctl.deployment.schema import Endpoint, KnobValue
from archonctl.engines.knob_values import as_bool, spelled
from archonctl.memory.demand import Demand


@dataclass(frozen=True, slots=True)
class CacheRow:
    """One row of ``host_cache.toml``, which explains the fields."""

    engine: str
    tier: Literal["dram", "disk"]
    flag: str
    unit_bytes: int
    per: Literal["host", "rank", "pool"]
    what: str
    source: str
    json: str = ""
    switch: str = ""
    default: float | None = None
    unlimited: float | None = None


@dataclass(frozen=True, slots=True)
class HostCache:
    """One cache that a declaration switches on. ``bytes`` of all ranks together; ``None``: unknown or not bounded."""

    row: CacheRow
    bytes: int | None
    declared: bool
    """False: by the engine's default."""
    why_unknown: str = ""


@functools.cache
def cache_rows(engine: str) -> tuple[CacheRow, ...]:
    """The rows of one engine; what comes first sizes a tier where several flags do."""
    rows = tomllib.loads(files("archonctl.engines").joinpath("host_cache.toml").read_text(encoding="utf-8"))["cache"]
    return tuple(CacheRow(**row) for row in rows if row["engine"] == engine)


def host_caches(endpoint: Endpoint, ranks: int, pool_bytes: int | None) -> tuple[HostCache, ...]:
    """The caches that are on, one a tier; ``pool_bytes`` is the KV pool of all ranks, ``None`` where unknown.

    Whether the declared version takes the flags is for the knob tables to say.
    """
    knobs = {spelled(key): value for key, value in endpoint.engine.knobs.items()}
    found: dict[str, HostCache] = {}
    for row in cache_rows(endpoint.engine.kind):
        if row.tier not in found and (cache := _cache(row, knobs, ranks, pool_bytes)) is not None:
            found[row.tier] = cache
    return tuple(found.values())


def cache_demands(endpoint: Endpoint, ranks: int, pool_bytes: int | None) -> Iterator[Demand]:
    """What the caches in RAM are asked to hold, locked; one of unknown size is left out."""
    flags = {name for row in cache_rows(endpoint.engine.kind) for name in (row.flag, row.switch)}
    if not flags & {spelled(key) for key in endpoint.engine.knobs}:
        return
    for cache in host_caches(endpoint, ranks, pool_bytes):
        if cache.row.tier == "dram" and cache.bytes:
            yield Demand("ddr_cache", "host", "", cache.bytes, cache.row.what, "declared", pinned=True)


def _cache(row: CacheRow, knobs: Mapping[str, KnobValue], ranks: int, pool_bytes: int | None) -> HostCache | None:
    if row.switch and not as_bool(knobs.get(row.switch, False)):
        return None
    declared = row.flag in knobs
    value = _figure(knobs[row.flag], row.json) if declared else row.default
    if row.flag == "kv-offloading-size" and knobs.get("kv-offloading-backend") == "lmcache" and declared:
        # vllm/config/vllm.py at v0.32.0: the size is not passed on, a server of LMCache's own has the memory
        return HostCache(row, None, declared, "LMCache's own server decides its size")
    if value is None or (value <= 0 and value != row.unlimited):
        return None
    if value == row.unlimited:
        return HostCache(row, None, declared, "it has no bound")
    if row.per == "pool" and pool_bytes is None:
        return HostCache(row, None, declared, "a multiple of a KV pool that is not known")
    times = {"host": 1, "rank": ranks, "pool": pool_bytes or 0}[row.per]
    return HostCache(row, int(value * row.unit_bytes * times), declared)


def _figure(value: KnobValue, path: str) -> float | None:
    """A positive or negative number, from a JSON value where ``path`` says so; ``None`` if it is none."""
    found: object = value
    if path:
        try:
            found = json.loads(str(value))
        except (ValueError, RecursionError):
            return None
        for key in path.split("."):
            found = found.get(key) if isinstance(found, dict) else None
    if isinstance(found, bool) or not isinstance(found, (int, float, str)):
        return None
    try:
        number = float(str(found).replace("_", ""))
    except ValueError:
        return None
    return number if math.isfinite(number) and abs(number) < 1e18 else None
