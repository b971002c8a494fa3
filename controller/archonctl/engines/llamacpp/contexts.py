"""What one llama_context printed of its memory, and the figures that follow: cells, caches, states, buffers, tokens."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from archonctl.engines.sighting import Find, plus
from archonctl.memory.interval import Interval

_HOST_NAMES = ("CPU", "Host", "BLAS", "_Host", "CPU_Mapped", "CPU_REPACK", "CPU_AARCH64")
_MAIN = ("non-SWA", "main", "DSA", "")
MOST_CONTEXTS = 64


def is_host(device: str) -> bool:
    """True for a buffer that lies in host memory ("CPU", "CPU_Mapped", "CUDA_Host")."""
    return device in _HOST_NAMES or device.startswith("CPU") or device.endswith("_Host")


def total(finds: Iterable[Find]) -> Find | None:
    """Sum of figures, with the line of the last; None for no figure."""
    found: Find | None = None
    for find in finds:
        found = find if found is None else Find(plus(found.value, find.value), find.line_no, find.text)
    return found


@dataclass
class Cache:
    """One KV cache: its kind ("" where it is not said), its size line and its buffers by device."""

    kind: str = ""
    cells: Find | None = None
    dtype: str = ""
    """Type of keys and values where it is one."""
    self_size: bool = False
    """True where the size was told in the words of 2023 to 2025, which name no cells."""
    size: dict[str, Find] = field(default_factory=dict)
    buffers: dict[str, Find] = field(default_factory=dict)

    @property
    def mib(self) -> Find | None:
        """The size line, which is exact; else the buffers together. Never both."""
        return self.size.get("kv_mib") or total(self.buffers.values())

    @property
    def allocated(self) -> bool:
        """False for a dry run: a size, but buffers of 0.00 MiB."""
        if not self.buffers:
            return True
        return any(find.value.high > 0.01 for find in self.buffers.values())


@dataclass
class Context:
    """One llama_context with what it allocated."""

    head: dict[str, Find] = field(default_factory=dict)
    caches: list[Cache] = field(default_factory=list)
    state: dict[str, Find] = field(default_factory=dict)
    state_buffers: dict[str, Find] = field(default_factory=dict)
    compute: dict[str, Find] = field(default_factory=dict)

    def main(self) -> Cache | None:
        """The cache whose cells bound the sequences."""
        return next((c for c in self.caches if c.kind in _MAIN), None)

    @property
    def dry(self) -> bool:
        return bool(self.caches) and not any(cache.allocated for cache in self.caches)

    @property
    def empty(self) -> bool:
        return not (self.caches or self.state or self.state_buffers or self.compute or self.head)

    @property
    def bare(self) -> bool:
        """True where neither the settings of the context nor its compute buffers were printed."""
        return not (self.head or self.compute)

    def streams(self, unified: str) -> int | None:
        """Independent KV streams; None where no line says it. ``unified`` is what the slots line says of it."""
        main = self.main()
        if main is not None and "streams" in main.size:
            return round(main.size["streams"].value.best)
        if main is not None and "n_seqs" in main.size:
            return 1  # the form of mid 2025 prints sequences only; the cache was always one
        if main is not None and "kv_size" in main.size:
            return 1
        if unified == "true":
            return 1
        if unified == "false" and "n_seq_max" in self.head:
            return round(self.head["n_seq_max"].value.best)
        return None


def devices(name: str, buffers: dict[str, Find]) -> dict[str, Find]:
    """``<name>_mib`` on the devices (on the host where there is none) and ``<name>_host_mib``."""
    cards = total(find for device, find in buffers.items() if not is_host(device))
    host = total(find for device, find in buffers.items() if is_host(device))
    found: dict[str, Find] = {}
    if first := cards or host:
        found[f"{name}_mib"] = first
    if host:
        found[f"{name}_host_mib"] = host
    return found


def of_context(context: Context, unified: str) -> dict[str, Find]:
    """Every figure of the context that serves; ``unified`` is what the slots line says of it."""
    found = dict(context.head)
    main = context.main()
    if main is not None:
        found |= main.size
        if main.mib:
            found["kv_mib"] = main.mib
        if main.cells:
            found["cells"] = main.cells
    found |= _of_other_caches(context, main)
    found |= context.state
    if states := total(context.state_buffers.values()):
        found.setdefault("rs_mib", states)
        if len(context.state_buffers) == 1:
            found["rs_per_device_mib"] = next(iter(context.state_buffers.values()))
    found |= devices("compute", context.compute)
    tokens = _tokens(main, context.streams(unified)) or _tokens_of_old(context, main)
    if tokens:
        found["kv_tokens"] = tokens
    return found


def _of_other_caches(context: Context, main: Cache | None) -> dict[str, Find]:
    found: dict[str, Find] = {}
    for cache in context.caches:
        if cache is main:
            continue
        name = "swa" if cache.kind == "SWA" else "indexer"
        if cache.mib:
            found[f"{name}_kv_mib"] = cache.mib
        if cache.kind == "SWA":
            if cache.cells:
                found["swa_cells"] = cache.cells
            if "kv_layers" in cache.size:
                found["swa_layers"] = cache.size["kv_layers"]
            if main is not None and "kv_layers" in main.size:
                found["full_layers"] = main.size["kv_layers"]
    sizes = [cache.mib for cache in context.caches if cache.mib]
    if len(sizes) == len(context.caches) and (together := total(sizes)):
        found["kv_total_mib"] = together
    return found


def by_type(caches: Iterable[Cache]) -> dict[str, Find]:
    """``<dtype>_mib``: the first cache of each type (people compare types in one log)."""
    found: dict[str, Find] = {}
    for cache in caches:
        if cache.dtype and "kv_mib" in cache.size and len(found) < MOST_CONTEXTS:
            found.setdefault(f"{cache.dtype}_mib", cache.size["kv_mib"])
    return found


def of_drafts(drafts: list[Context]) -> dict[str, Find]:
    """What the contexts of drafts take beside it."""
    found: dict[str, Find | None] = {
        "draft_kv_mib": total(c.mib for d in drafts for c in d.caches if c.mib),
        "draft_rs_mib": total(d.state["rs_mib"] for d in drafts if "rs_mib" in d.state),
        "draft_compute_mib": total(
            find for d in drafts if (find := devices("compute", d.compute).get("compute_mib")) is not None
        ),
    }
    return {name: find for name, find in found.items() if find is not None}


def _tokens_of_old(context: Context, main: Cache | None) -> Find | None:
    """Until 2025 the cache had as many cells as the context has tokens (src/llama.cpp, llama_kv_cache_init).

    Not so for recurrent models, whose states are float32; the line of the cells came with a cache type of its own.
    """
    n_ctx = context.head.get("n_ctx")
    if main is None or main.cells is not None or not main.self_size or not main.allocated or n_ctx is None:
        return None
    return n_ctx if main.dtype != "f32" else None


def _tokens(main: Cache | None, streams: int | None) -> Find | None:
    """Cells times streams, if the cache was really made and the number of streams is known."""
    if main is None or main.cells is None or main.mib is None or not main.allocated:
        return None
    if streams is None:
        return None
    cells = main.cells
    return Find(Interval.exact(cells.value.best * streams, "log"), cells.line_no, cells.text)
