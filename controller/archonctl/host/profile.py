"""A host as values: cards, RAM and the kernel's pinned-memory limit. Every figure says where it came from."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

FactSource = Literal["declared", "sysfs", "assumed"]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Settle(_Frozen):
    """The engine's own settle line: what it left free on a card, against the floor it keeps."""

    free_gib: Annotated[str, Field(pattern=r"^[0-9]{1,9}(\.[0-9]{1,9})?$")]
    """As printed ("2.01"); the rounding is part of the figure."""
    floor_mib: Annotated[float, Field(ge=0)]
    at_ceiling_mib: Annotated[float, Field(gt=0)]
    """The slab + pool ceiling in force when the line was printed."""
    source: str = ""


class Card(_Frozen):
    """One device. Memory in MiB; ``outside_mib`` is consumed outside both budgets, ``reserve_mib`` kept by hand."""

    index: Annotated[int, Field(ge=0)]
    name: str
    total_mib: Annotated[int, Field(gt=0)]
    free_mib: Annotated[int, Field(ge=0)] | None = None
    outside_mib: Annotated[int, Field(ge=0)] = 0
    reserve_mib: Annotated[int, Field(ge=0)] = 0
    settle: Settle | None = None


class Host(_Frozen):
    """A machine. ``cards`` is empty on a CPU-only host; then the engine's memory is RAM."""

    name: str = ""
    source: FactSource = "declared"
    page_bytes: Annotated[int, Field(gt=0)] = 4096
    ram_mib: Annotated[int, Field(gt=0)] | None = None
    available_mib: Annotated[int, Field(ge=0)] | None = None
    cgroup_limit_mib: Annotated[int, Field(gt=0)] | None = None
    ttm_pages_limit: Annotated[int, Field(gt=0)] | None = None
    ttm_target_mib: Annotated[int, Field(gt=0)] | None = None
    cards: tuple[Card, ...] = ()
    devices: tuple[Annotated[str, Field(pattern=r"^/dev(/[A-Za-z0-9_-][A-Za-z0-9._-]*)+$")], ...] = ()
    """Device nodes that must be there before an engine on cards may start (``/dev/kfd``, ``/dev/nvidia-uvm``)."""
    cards_shared: bool = False
    """A desktop or other engines use the cards as well: a process that holds one is no reason not to start."""
    groups: dict[Literal["video", "render"], Annotated[int, Field(ge=0, lt=1 << 32)]] = {}
    """Numbers of the groups that own the device nodes: within a container their names may have others, or none."""
    notes: tuple[str, ...] = ()
    """What was there and could not be read, and what else a plan should say about this host."""
