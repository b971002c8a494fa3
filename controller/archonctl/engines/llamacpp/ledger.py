"""llama.cpp's boot log needs memory: contexts come in turn, and each prints caches, states and buffers.

- With ``-v`` the dry run of ``--fit`` prints a whole context first; its KV buffers are 0.00 MiB (nothing is allocated).
- A draft model or MTP head makes a second context, whose lines add memory but replace nothing.
- Sliding-window and sparse-attention models print two caches; cells are per stream.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from archonctl.engines.sighting import SERIES_LIMIT, Book, Find, Note, Sighting, plus
from archonctl.memory.interval import Interval

_HOST_NAMES = ("CPU", "Host", "BLAS", "_Host", "CPU_Mapped", "CPU_REPACK", "CPU_AARCH64")
_MAIN = ("non-SWA", "main", "DSA", "")
_CONTEXTS = 64


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
class _Cache:
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
class _Context:
    """One llama_context with what it allocated."""

    head: dict[str, Find] = field(default_factory=dict)
    caches: list[_Cache] = field(default_factory=list)
    state: dict[str, Find] = field(default_factory=dict)
    state_buffers: dict[str, Find] = field(default_factory=dict)
    compute: dict[str, Find] = field(default_factory=dict)

    def main(self) -> _Cache | None:
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


class LlamaBook(Book):
    """Gathers contexts; the target context gives the figures, drafts give ``draft_*``."""

    def __post_init__(self) -> None:
        self._contexts: list[_Context] = [_Context()]
        self._weights: dict[str, Find] = {}
        self._weights_closed = False

    # -- taking in -----------------------------------------------------------------------------------------------

    def note(self, sighting: Sighting) -> None:
        """Take one sighting in."""
        taker = getattr(self, "_on_" + sighting.row.replace("-", "_"), None)
        if taker is not None:
            taker(sighting)
        else:
            super().note(sighting)

    def _here(self) -> _Context:
        return self._contexts[-1]

    def _open(self) -> _Context:
        if not self._here().empty and len(self._contexts) < _CONTEXTS:
            self._contexts.append(_Context())
        return self._here()

    def _for_cache(self) -> _Context:
        """The context that a cache line belongs to: buffers for computing come last, so a cache after them is new."""
        here = self._here()
        return self._open() if here.compute else here

    def _on_context_sequences(self, s: Sighting) -> None:
        here = self._here()
        if "n_seq_max" in here.head or here.caches or here.compute:
            here = self._open()
        self._head(s, here)

    def _head(self, s: Sighting, context: _Context | None = None) -> None:
        context = context or self._here()
        context.head.update(s.figures)
        self._weights_closed = True
        self._keep(s)

    _on_context_total = _on_context_sequence = _on_context_per_sequence = _on_context_ubatch = _head

    def _on_kv_creating(self, s: Sighting) -> None:
        context = self._for_cache()
        kind = s.facts["cache"]
        if any(cache.kind == kind for cache in context.caches):
            context = self._open()
        context.caches.append(_Cache(kind, s.figures["cells"]))

    def _cache(self, wants_size: bool) -> _Cache:
        """The cache that a size or buffer line is about."""
        context = self._for_cache()
        last = context.caches[-1] if context.caches else None
        if last is None or (wants_size and "kv_mib" in last.size):
            if last is not None and not last.kind:
                context = self._open()  # a second unnamed cache is another context
            last = _Cache()
            context.caches.append(last)
        return last

    def _on_kv_size(self, s: Sighting) -> None:
        cache = self._cache(wants_size=True)
        cache.size.update(s.figures)
        cache.cells = s.figures.get("cells")
        self.told.update(s.facts)
        if s.facts.get("k_type") == s.facts.get("v_type"):
            cache.dtype = s.facts.get("k_type", "")
        self._keep(s)

    def _on_kv_self(self, s: Sighting) -> None:
        cache = self._cache(wants_size=True)
        cache.size.update(s.figures)
        cache.self_size = True
        cache.dtype = cache.dtype or s.facts.get("k_type", "")
        self.told.update(s.facts)
        self._keep(s)

    def _on_kv_init(self, s: Sighting) -> None:
        cache = self._cache(wants_size=False)
        cache.size.update(s.figures)
        cache.cells = s.figures["kv_size"]
        self.told.update(s.facts)
        self._keep(s)

    def _on_kv_buffer(self, s: Sighting) -> None:
        cache = self._cache(wants_size=False)
        if "kv_mib" in cache.size:  # size lines follow their buffers: this one starts another cache
            cache = self._cache(wants_size=True)
        self._buffer(cache.buffers, s)
        self._occurrence("kv_per_device", s.figures["buffer_mib"])

    def _on_kv_indexer(self, s: Sighting) -> None:
        self._here().caches.append(_Cache("indexer", size={"kv_mib": s.figures["indexer_kv_mib"]}))
        self._keep(s)

    def _on_rs_size(self, s: Sighting) -> None:
        self._for_cache().state.update(s.figures)
        self._keep(s)

    def _on_rs_buffer(self, s: Sighting) -> None:
        self._buffer(self._for_cache().state_buffers, s)

    def _on_compute_buffer(self, s: Sighting) -> None:
        self._buffer(self._here().compute, s)

    def _on_model_buffer(self, s: Sighting) -> None:
        if self._weights_closed and any(not c.dry and c.caches for c in self._contexts):
            self._occurrence("draft_model_mib", s.figures["buffer_mib"])
            return
        self._buffer(self._weights, s)

    _on_model_2023 = _on_model_host_2023 = _on_model_host_early_2023 = _on_model_buffer

    def _buffer(self, buffers: dict[str, Find], s: Sighting) -> None:
        if len(buffers) < SERIES_LIMIT * 4:
            buffers[s.facts.get("device", "")] = s.figures["buffer_mib"]

    def _keep(self, s: Sighting) -> None:
        for name, find in s.figures.items():
            self._occurrence(name, find)

    def _occurrence(self, name: str, find: Find) -> None:
        series = self.series.setdefault(name, [])
        if len(series) < SERIES_LIMIT:
            series.append(find)

    # -- giving out ----------------------------------------------------------------------------------------------

    def _real(self) -> list[_Context]:
        """Contexts that were allocated, in order; the last dry run where there is nothing else."""
        contexts = [c for c in self._contexts if not c.empty]
        real = [c for c in contexts if not c.dry]
        return real or contexts[-1:]

    def figures(self) -> dict[str, Find]:
        """All figures of the boot."""
        found = super().figures()
        real = self._real()
        if real:
            found |= _of_context(real[0], self.told.get("kv_unified", ""))
            found |= _of_drafts(real[1:])
            found |= _by_type(cache for context in real for cache in context.caches)
            if all(context.bare for context in real):  # pieces of several logs: what the first lacks is in the others
                found = {**{k: v for c in real[1:] for k, v in c.state.items()}, **found}
        found |= _devices("model", self._weights)
        return found

    def notes(self) -> Iterable[Note]:
        """Layers that stayed on the CPU."""
        done, all_layers = self.folded("offloaded_layers"), self.folded("model_layers")
        if done is None or all_layers is None or done.value.best >= all_layers.value.best:
            return
        code = "partial-offload" if done.value.best else "cpu-fallback"
        yield Note(code, "warning", done.text, done.line_no)


def _devices(name: str, buffers: dict[str, Find]) -> dict[str, Find]:
    """``<name>_mib`` on the devices (on the host where there is none) and ``<name>_host_mib``."""
    cards = total(find for device, find in buffers.items() if not is_host(device))
    host = total(find for device, find in buffers.items() if is_host(device))
    found: dict[str, Find] = {}
    if cards or host:
        found[f"{name}_mib"] = cards or host  # type: ignore[assignment]  # one of them is there
    if host:
        found[f"{name}_host_mib"] = host
    return found


def _of_context(context: _Context, unified: str) -> dict[str, Find]:
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
    if context.state_buffers:
        found.setdefault("rs_mib", total(context.state_buffers.values()))  # type: ignore[arg-type]
        if len(context.state_buffers) == 1:
            found["rs_per_device_mib"] = next(iter(context.state_buffers.values()))
    found |= _devices("compute", context.compute)
    tokens = _tokens(main, context.streams(unified)) or _tokens_of_old(context, main)
    if tokens:
        found["kv_tokens"] = tokens
    return found


def _of_other_caches(context: _Context, main: _Cache | None) -> dict[str, Find]:
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
    sizes = [cache.mib for cache in context.caches]
    if sizes and all(sizes):
        found["kv_total_mib"] = total(size for size in sizes if size)  # type: ignore[assignment]
    return found


def _by_type(caches: Iterable[_Cache]) -> dict[str, Find]:
    """``<dtype>_mib``: the first cache of each type (people compare types in one log)."""
    found: dict[str, Find] = {}
    for cache in caches:
        if cache.dtype and "kv_mib" in cache.size and len(found) < _CONTEXTS:
            found.setdefault(f"{cache.dtype}_mib", cache.size["kv_mib"])
    return found


def _of_drafts(drafts: list[_Context]) -> dict[str, Find]:
    found: dict[str, Find | None] = {
        "draft_kv_mib": total(c.mib for d in drafts for c in d.caches if c.mib),
        "draft_rs_mib": total(d.state["rs_mib"] for d in drafts if "rs_mib" in d.state),
        "draft_compute_mib": total(
            find for d in drafts if (find := _devices("compute", d.compute).get("compute_mib")) is not None
        ),
    }
    return {name: find for name, find in found.items() if find is not None}


def _tokens_of_old(context: _Context, main: _Cache | None) -> Find | None:
    """Until 2025 the cache had as many cells as the context has tokens (src/llama.cpp, llama_kv_cache_init).

    Not so for recurrent models, whose states are float32; the line of the cells came with a cache type of its own.
    """
    n_ctx = context.head.get("n_ctx")
    if main is None or main.cells is not None or not main.self_size or not main.allocated or n_ctx is None:
        return None
    return n_ctx if main.dtype != "f32" else None


def _tokens(main: _Cache | None, streams: int | None) -> Find | None:
    """Cells times streams, if the cache was really made and the number of streams is known."""
    if main is None or main.cells is None or main.mib is None or not main.allocated:
        return None
    if streams is None:
        return None
    cells = main.cells
    return Find(Interval.exact(cells.value.best * streams, "log"), cells.line_no, cells.text)


BOOK = LlamaBook
