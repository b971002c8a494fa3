"""A host as values: cards, RAM and the kernel's pinned-memory limit. Every figure says where it came from."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

MAX_CARD_MIB = 1 << 24
"""16 TiB: a card with more is a driver's nonsense."""

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
    """One device. Memory in MiB; ``outside_mib`` is consumed outside both budgets, ``reserve_mib`` kept by hand.

    ``total_mib`` is what programs may have in all (what CUDA or HIP call the total), ``installed_mib`` what the driver
    counts, where that is more.
    """

    index: Annotated[int, Field(ge=0)]
    name: str
    total_mib: Annotated[int, Field(gt=0, le=MAX_CARD_MIB)]
    free_mib: Annotated[int, Field(ge=0)] | None = None
    installed_mib: Annotated[int, Field(gt=0)] | None = None
    maker: Literal["", "nvidia", "amd", "intel"] = ""
    target: Annotated[str, Field(pattern=r"^([0-9]{1,2}\.[0-9]|gfx[0-9a-f]{3,5}|xe[a-z0-9-]{0,8})?$")] = ""
    """Compute capability ("9.0"), gfx target ("gfx1201") or Intel architecture ("xe2"); empty where unknown."""
    driver: str = ""
    pci: str = ""
    """Address on the bus ("0000:03:00.0")."""
    unified: bool = False
    """The card shares RAM with the system: what it uses is missing there too."""
    gtt_mib: Annotated[int, Field(gt=0)] | None = None
    """RAM that an AMD card may map."""
    gtt_free_mib: Annotated[int, Field(ge=0)] | None = None
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
    cgroup_free_mib: Annotated[int, Field(ge=0)] | None = None
    """What the tightest control group has left, with the file cache that it can drop."""
    hugepages_mib: Annotated[int, Field(ge=0)] | None = None
    """RAM set aside as huge pages: part of ``ram_mib``, and of no use to ordinary allocations."""
    memlock_mib: Annotated[int, Field(ge=0)] | Literal["unlimited"] | None = None
    """RLIMIT_MEMLOCK of whoever reads it (a unit has its own)."""
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

    def without_free(self) -> Host:
        """The same machine with nothing known of what is free now."""
        cards = tuple(card.model_copy(update={"free_mib": None, "gtt_free_mib": None}) for card in self.cards)
        return self.model_copy(update={"available_mib": None, "cgroup_free_mib": None, "cards": cards})
