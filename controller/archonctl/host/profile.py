"""A host as values: cards, RAM and the kernel's pinned-memory limit. Every figure says where it came from."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

FactSource = Literal["declared", "sysfs", "assumed"]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Settle(_Frozen):
    """The engine's own settle line: what it left free on a card, against the floor it keeps."""

    free_gib: str
    """As printed ("2.01"); the rounding is part of the figure."""
    floor_mib: float
    at_ceiling_mib: float
    """The slab + pool ceiling in force when the line was printed."""
    source: str = ""


class Card(_Frozen):
    """One device. Memory in MiB; ``outside_mib`` is consumed outside both budgets, ``reserve_mib`` kept by hand."""

    index: Annotated[int, Field(ge=0)]
    name: str
    total_mib: Annotated[int, Field(gt=0)]
    free_mib: int | None = None
    outside_mib: int = 0
    reserve_mib: int = 0
    settle: Settle | None = None


class Host(_Frozen):
    """A machine. ``cards`` is empty on a CPU-only host; then the engine's memory is RAM."""

    name: str = ""
    source: FactSource = "declared"
    page_bytes: int = 4096
    ram_mib: int | None = None
    available_mib: int | None = None
    cgroup_limit_mib: int | None = None
    ttm_pages_limit: int | None = None
    ttm_target_mib: int | None = None
    cards: tuple[Card, ...] = ()
