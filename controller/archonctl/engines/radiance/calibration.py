"""``calibration.toml`` as values: prices of moved memory, boots that the law was compared with, slab and prefill."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Exchange:
    """A quoted price of moved memory; ``tokens_per_mib`` at ``kv_dtype``."""

    name: str
    kv_dtype: str
    tokens_per_mib: float
    source: str


@dataclass(frozen=True, slots=True)
class LawCheck:
    """A boot that the law was compared with."""

    pool_mib: float
    seqs: int
    kv_dtype: str
    tokens: int
    source: str


@dataclass(frozen=True, slots=True)
class Calibration:
    """``calibration.toml`` as values."""

    exchanges: tuple[Exchange, ...]
    law_within: float
    law_boots: tuple[LawCheck, ...]
    slab_prefill: tuple[tuple[float, float], ...]
    """(slab MiB, prefill tokens a second), ascending."""
    exact: frozenset[str]
    widens: frozenset[str]
    inert: frozenset[str]
    reach_mib: int


@cache
def calibration() -> Calibration:
    """The shipped figures."""
    data = tomllib.loads(Path(__file__).with_name("calibration.toml").read_text(encoding="utf-8"))
    return Calibration(
        exchanges=tuple(_exchange(row) for row in data["exchange"]),
        law_within=data["law"]["within"],
        law_boots=tuple(LawCheck(**row) for row in data["law"]["boot"]),
        slab_prefill=tuple(sorted((float(row["mib"]), float(row["prefill_tps"])) for row in data["slab"])),
        exact=frozenset(data["carry"]["exact"]),
        widens=frozenset(data["carry"]["widens"]),
        inert=frozenset(data["carry"]["inert"]),
        reach_mib=data["carry"]["reach_mib"],
    )


def _exchange(row: Mapping[str, Any]) -> Exchange:
    rate = 1024 / row["kib_per_token"] if "kib_per_token" in row else row["tokens"] / row["mib"]
    return Exchange(row["name"], row["kv_dtype"], rate, row["source"])
