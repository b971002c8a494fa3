"""The tiers of an endpoint: what was measured, else declared, else what the machine or the table of defaults says."""

from __future__ import annotations

import functools
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files

from archonctl.deployment.tiers import TierPlace, Tiers
from archonctl.memory.interval import MIB
from archonctl.tiers.values import Tier

ENGINE = "engine"
"""The hottest tier: the engine's own pool."""


@dataclass(frozen=True, slots=True)
class Default:
    """One row of ``tiers.toml``."""

    name: str
    is_memory: bool
    bandwidth_bytes_per_s: float
    latency_s: float
    what: str
    source: str


@dataclass(frozen=True, slots=True)
class Seen:
    """What is known of one tier from outside of the declaration; ``None`` where it is not.

    ``capacity_bytes`` is what the machine (or the plan, of the engine's pool) has room for; ``bandwidth_bytes_per_s``
    and ``latency_s`` were measured by moving KV cache.
    """

    capacity_bytes: int | None = None
    other_bytes: int = 0
    places: int | None = None
    bandwidth_bytes_per_s: float | None = None
    latency_s: float | None = None
    source: str = ""
    high_water: float | None = None


@functools.cache
def defaults() -> dict[str, Default]:
    """Every row, from the hottest to the coldest."""
    rows = tomllib.loads(files("archonctl.tiers").joinpath("tiers.toml").read_text(encoding="utf-8"))["tier"]
    return {
        row["name"]: Default(
            row["name"],
            row["is_memory"],
            row["bandwidth_mb_s"] * 1e6,
            row["latency_ns"] / 1e9,
            row["what"],
            row["source"],
        )
        for row in rows
    }


def ladder(declared: Tiers, seen: Mapping[str, Seen]) -> tuple[Tier, ...]:
    """The tiers that are there: the engine's pool, and every place that is declared with room or was seen.

    A bandwidth that was measured wins over one that is declared; of two capacities the smaller one is taken.
    """
    found = []
    for name, row in defaults().items():
        place: TierPlace | None = getattr(declared, name)
        facts = seen.get(name)
        if name == ENGINE or place is not None or facts is not None:
            tier = _tier(row, place or TierPlace(), facts or Seen())
            if name == ENGINE or tier.capacity_bytes != 0:
                found.append(tier)
    return tuple(found)


def _tier(row: Default, place: TierPlace, seen: Seen) -> Tier:
    declared = None if place.capacity_mib is None else place.capacity_mib * MIB
    capacity = [each for each in (declared, seen.capacity_bytes) if each is not None]
    speed, speed_from = _first(
        (seen.bandwidth_bytes_per_s, "measured"),
        (None if place.bandwidth_mib_s is None else place.bandwidth_mib_s * MIB, "declared"),
        (row.bandwidth_bytes_per_s, "assumed"),
    )
    latency, _ = _first(
        (seen.latency_s, ""), (None if place.latency_ms is None else place.latency_ms / 1000, ""), (row.latency_s, "")
    )
    return Tier(
        row.name,
        row.is_memory,
        min(capacity, default=None),
        speed,
        latency,
        seen.other_bytes,
        seen.places,
        f"bandwidth {speed_from}" + (f"; {seen.source}" if seen.source else ""),
        seen.high_water,
    )


def _first(*choices: tuple[float | None, str]) -> tuple[float | None, str]:
    """The first figure that is one."""
    return next(((value, said) for value, said in choices if value is not None and math.isfinite(value)), (None, ""))
