"""``[tiers]`` of a declaration: where KV cache may lie beside the engine's own pool, and what is known of it."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field


class TierPlace(BaseModel):
    """One place. What is not stated was measured, is read from the machine, or comes from the table of defaults."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    path: str = ""
    """The folder; for ``dram`` one on a tmpfs, for ``disk`` one on a disk."""
    capacity_mib: Annotated[int, Field(ge=0, le=1 << 40)] | None = None
    """The most that may lie there; 0: the place is not used."""
    bandwidth_mib_s: Annotated[float, Field(gt=0)] | None = None
    latency_ms: Annotated[float, Field(ge=0)] | None = None


class Tiers(BaseModel):
    """Every place from the hottest to the coldest; only those that are declared are used."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    high_water: Annotated[float, Field(gt=0, le=1)] = 0.80
    """Share of a tier above which it is relieved."""
    prefill_tokens_per_s: Annotated[float, Field(gt=0)] | None = None
    """How fast the engine prefills, where nothing has measured it."""
    conversations: Annotated[int, Field(ge=1, le=10_000_000)] | None = None
    """How many conversations come back again and again; default: as many as the contract has at once."""
    reuse: Annotated[float, Field(gt=0, le=1)] | None = None
    """Share of a prompt that its conversation had before: the most that a cache hits. Unset: nothing is expected."""
    compressed_share: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Share of its bytes that a conversation takes in a smaller form that the engine's colder tiers can keep it in and
    that is known to serve as well (LMCache's CacheGen, say). Unset: there is no such form."""
    engine: TierPlace | None = None
    """The engine's own pool: on the cards, or in RAM. Its capacity is the plan's."""
    dram: TierPlace | None = None
    numa_far: TierPlace | None = None
    cxl: TierPlace | None = None
    disk: TierPlace | None = None
    remote: TierPlace | None = None
