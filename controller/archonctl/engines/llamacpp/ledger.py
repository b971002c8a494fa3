"""llama.cpp's boot log needs memory: contexts come in turn, and each prints caches, states and buffers.

- With ``-v`` the dry run of ``--fit`` prints a whole context first; its KV buffers are 0.00 MiB (nothing is allocated).
- A draft model or MTP head makes a second context, whose lines add memory but replace nothing.
- Sliding-window and sparse-attention models print two caches; cells are per stream.
"""

from __future__ import annotations

from collections.abc import Iterable

from archonctl.engines.llamacpp.contexts import (
    MOST_CONTEXTS,
    Cache,
    Context,
    by_type,
    devices,
    of_context,
    of_drafts,
)
from archonctl.engines.sighting import SERIES_LIMIT, Book, Find, Note, Sighting


class LlamaBook(Book):
    """Gathers contexts; the target context gives the figures, drafts give ``draft_*``."""

    def __post_init__(self) -> None:
        self._contexts: list[Context] = [Context()]
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

    def _here(self) -> Context:
        return self._contexts[-1]

    def _open(self) -> Context:
        if not self._here().empty and len(self._contexts) < MOST_CONTEXTS:
            self._contexts.append(Context())
        return self._here()

    def _for_cache(self) -> Context:
        """The context that a cache line belongs to: buffers for computing come last, so a cache after them is new."""
        here = self._here()
        return self._open() if here.compute else here

    def _on_context_sequences(self, s: Sighting) -> None:
        here = self._here()
        if "n_seq_max" in here.head or here.caches or here.compute:
            here = self._open()
        self._head(s, here)

    def _head(self, s: Sighting, context: Context | None = None) -> None:
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
        context.caches.append(Cache(kind, s.figures["cells"]))

    def _cache(self, wants_size: bool) -> Cache:
        """The cache that a size or buffer line is about."""
        context = self._for_cache()
        last = context.caches[-1] if context.caches else None
        if last is None or (wants_size and "kv_mib" in last.size):
            if last is not None and not last.kind:
                context = self._open()  # a second unnamed cache is another context
            last = Cache()
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
        self._here().caches.append(Cache("indexer", size={"kv_mib": s.figures["indexer_kv_mib"]}))
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

    def _real(self) -> list[Context]:
        """Contexts that were allocated, in order; the last dry run where there is nothing else."""
        contexts = [c for c in self._contexts if not c.empty]
        real = [c for c in contexts if not c.dry]
        return real or contexts[-1:]

    def figures(self) -> dict[str, Find]:
        """All figures of the boot."""
        found = super().figures()
        real = self._real()
        if real:
            found |= of_context(real[0], self.told.get("kv_unified", ""))
            found |= of_drafts(real[1:])
            found |= by_type(cache for context in real for cache in context.caches)
            if all(context.bare for context in real):  # pieces of several logs: what the first lacks is in the others
                found = {**{k: v for c in real[1:] for k, v in c.state.items()}, **found}
        found |= devices("model", self._weights)
        return found

    def notes(self) -> Iterable[Note]:
        """Layers that stayed on the CPU."""
        done, all_layers = self.folded("offloaded_layers"), self.folded("model_layers")
        if done is None or all_layers is None or done.value.best >= all_layers.value.best:
            return
        code = "partial-offload" if done.value.best else "cpu-fallback"
        yield Note(code, "warning", done.text, done.line_no)


BOOK = LlamaBook
