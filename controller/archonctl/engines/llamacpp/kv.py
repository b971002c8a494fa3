"""The KV law of llama-server: geometry and settings in, exact cells and bytes out.

Pure arithmetic on the model's geometry; it needs no model file, no engine and no host. Read from the sources
of llama.cpp b11434 and compared there with the engine's own boot log (``tests/integration/engines``):

- ``src/llama-context.cpp`` (constructor): rounding of the context, batch and micro-batch;
- ``src/llama-kv-cache.cpp`` (constructor): which layers have cells, row widths, streams, V without flash attention;
- ``src/llama-kv-cache-iswa.cpp`` (constructor): the second, smaller cache of sliding-window layers;
- ``src/llama-memory-recurrent.cpp`` (constructor): state of recurrent layers, always f32;
- ``src/llama-model.cpp`` (``create_memory``): which of them an architecture gets;
- ``common/fit.cpp`` and ``tools/server/server-context.cpp`` (``n_ctx_slot``): context 0 and the cap of a slot.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from archonctl.model.geometry import Geometry, Layer

BUILD = "b11434"
"""The build on which this law was verified."""

VERIFIED_ARCHITECTURES = frozenset(
    {"llama", "qwen2", "qwen3", "qwen3moe", "gemma3", "deepseek2", "gpt-oss", "qwen3next"}
)
"""Architectures whose boot logs were compared with this law, cell by cell and byte by byte."""

ROW_BLOCKS: dict[str, tuple[int, int]] = {
    "f32": (1, 4),
    "f16": (1, 2),
    "bf16": (1, 2),
    "q8_0": (32, 34),
    "q4_0": (32, 18),
    "q4_1": (32, 20),
    "iq4_nl": (32, 18),
    "q5_0": (32, 22),
    "q5_1": (32, 24),
}
"""Cache dtype: (values a block, bytes a block). Source: ggml/src/ggml-common.h; allowed names: common/arg.cpp."""

QUANTISED = frozenset(name for name, (values, _) in ROW_BLOCKS.items() if values > 1)
CONTEXT_STEP = 256
"""Cells come in steps of 256 a stream (GGML_PAD(..., 256) in src/llama-context.cpp)."""
MAX_SEQUENCES = 256
"""LLAMA_MAX_SEQ in src/llama-cparams.h: more slots are refused at boot."""
MAX_CONTEXT = 2**31 - 1
"""--ctx-size is read with std::stoi (common/arg.cpp): anything larger is refused as an argument."""
DEFAULT_BATCH = 2048
DEFAULT_UBATCH = 512
F32_BYTES = 4


@dataclass(frozen=True, slots=True)
class KvSettings:
    """What decides the allocation, as llama-server understands it (counts in tokens or sequences).

    ``n_ctx`` 0 means "as trained"; ``flash_attn`` is True for ``on`` and ``auto`` (the cache is laid out before
    ``auto`` is resolved); ``slot_cap`` is ``--kv-unified-per-slot`` (0: none); ``stretched_context`` is what YaRN
    makes of the trained context (0: nothing stretches it).
    """

    n_ctx: int
    n_seq_max: int
    kv_unified: bool = False
    type_k: str = "f16"
    type_v: str = "f16"
    n_batch: int = DEFAULT_BATCH
    n_ubatch: int = DEFAULT_UBATCH
    swa_full: bool = False
    flash_attn: bool = True
    fit: bool = True
    slot_cap: int = 0
    stretched_context: int = 0
    kept_states: int = 0
    """Recurrent states that a sequence keeps beside its own, so that drafted tokens can be taken back."""


@dataclass(frozen=True, slots=True)
class ContextShape:
    """The context after rounding, in tokens. ``n_ctx`` is what all sequences share together."""

    n_ctx: int
    n_ctx_seq: int
    n_ctx_slot: int
    """What one slot may hold: never more than the trained context, whatever is allocated."""
    streams: int
    n_ubatch: int


@dataclass(frozen=True, slots=True)
class Cache:
    """One KV cache: ``cells`` a stream, bytes of K and V over all streams and layers."""

    kind: Literal["full", "sliding"]
    cells: int
    streams: int
    layers: int
    k_bytes: int
    v_bytes: int

    @property
    def bytes(self) -> int:
        """K and V together."""
        return self.k_bytes + self.v_bytes

    @property
    def tokens(self) -> int:
        """Cells over all streams."""
        return self.cells * self.streams


@dataclass(frozen=True, slots=True)
class RecurrentState:
    """State of recurrent layers: one cell a sequence; bytes of R (convolution) and S (state space), both f32."""

    cells: int
    layers: int
    r_bytes: int
    s_bytes: int

    @property
    def bytes(self) -> int:
        """R and S together."""
        return self.r_bytes + self.s_bytes


@dataclass(frozen=True, slots=True)
class KvAllocation:
    """Everything that is allocated at boot for contexts. The first cache is the one that bounds the tokens."""

    shape: ContextShape
    caches: tuple[Cache, ...]
    recurrent: RecurrentState | None

    @property
    def kv_bytes(self) -> int:
        """All caches, without recurrent state."""
        return sum(cache.bytes for cache in self.caches)

    @property
    def bytes(self) -> int:
        """All caches and the recurrent state."""
        return self.kv_bytes + (self.recurrent.bytes if self.recurrent else 0)

    @property
    def tokens(self) -> int:
        """What all sequences may hold together, in tokens."""
        return self.shape.n_ctx


def pad(value: int, step: int = CONTEXT_STEP) -> int:
    """``value`` rounded up to a multiple of ``step`` (GGML_PAD)."""
    return -(-value // step) * step


def row_bytes(width: int, dtype: str) -> int:
    """Bytes of one row of ``width`` values. Raises KeyError for a dtype outside ``ROW_BLOCKS``.

    As ``ggml_row_size``: a width that is no multiple of the block loses its tail (``refusals`` names that case).
    """
    values, size = ROW_BLOCKS[dtype]
    return width * size // values


def context_shape(settings: KvSettings, trained_context: int) -> ContextShape:
    """Round the context as the engine does.

    ``trained_context`` in tokens; 0 where it is unknown (then nothing caps a slot, and ``n_ctx`` must not be 0).
    """
    streams = 1 if settings.kv_unified else settings.n_seq_max
    asked = settings.n_ctx or trained_context * (streams if settings.fit else 1)
    n_batch = min(asked, settings.n_batch)
    n_ubatch = min(n_batch, settings.n_ubatch or n_batch)
    n_ctx = pad(asked)
    n_ctx_seq = n_ctx if settings.kv_unified else pad(n_ctx // settings.n_seq_max)
    limits = [n_ctx_seq]
    if settings.slot_cap > 0:
        limits.append(settings.slot_cap)
    if cap := settings.stretched_context or trained_context:
        limits.append(cap)
    return ContextShape(n_ctx_seq * streams, n_ctx_seq, min(limits), streams, n_ubatch)


def allocate(geometry: Geometry, settings: KvSettings) -> KvAllocation:
    """Cells and bytes as llama-server allocates them at boot.

    Raises KeyError for an unknown dtype and ValueError if ``n_ctx`` is 0 and the trained context is unknown.
    """
    if settings.n_ctx == 0 and geometry.trained_context == 0:
        raise ValueError("n_ctx is 0 and the model names no trained context")
    shape = context_shape(settings, geometry.trained_context)
    # Without flash attention V is stored transposed, and every layer's V is padded to the widest one.
    v_widest = 0 if settings.flash_attn else max((layer.v_width for layer in geometry.layers), default=0)
    full = [kind for kind in geometry.kinds if kind[0].attention in ("full", "mla")]
    sliding = [kind for kind in geometry.kinds if kind[0].attention == "sliding"]
    caches = [_cache("full", shape.n_ctx_seq, full, settings, v_widest)]
    if sliding:
        cells = _sliding_cells([layer for layer, _ in sliding], shape, settings)
        caches.append(_cache("sliding", cells, sliding, settings, v_widest))
    return KvAllocation(shape, tuple(caches), _recurrent(geometry, settings))


def layer_bytes(geometry: Geometry, settings: KvSettings, kv: KvAllocation) -> tuple[int, ...]:
    """What each serving layer keeps of an allocation, in bytes: together all of it."""
    serving = geometry.serving
    v_widest = 0 if settings.flash_attn else max((layer.v_width for layer in geometry.layers), default=0)
    tokens = {cache.kind: cache.tokens for cache in kv.caches}
    tokens_of = {"full": tokens.get("full", 0), "mla": tokens.get("full", 0), "sliding": tokens.get("sliding", 0)}
    states = sum(layer.attention == "recurrent" for layer in serving)
    state = kv.recurrent.bytes // states if kv.recurrent and states else 0
    return tuple(
        state
        if layer.attention == "recurrent"
        else tokens_of.get(layer.attention, 0)
        * (row_bytes(layer.k_width, settings.type_k) + row_bytes(_v_width(layer, v_widest), settings.type_v))
        for layer in serving
    )


def _sliding_cells(layers: Iterable[Layer], shape: ContextShape, settings: KvSettings) -> int:
    """The window of every sequence in the stream and one micro-batch, in steps of 256."""
    if settings.swa_full:
        return shape.n_ctx_seq
    window = max(layer.window for layer in layers)
    sequences = settings.n_seq_max if settings.kv_unified else 1
    return pad(min(shape.n_ctx_seq, window * sequences + shape.n_ubatch))


def _cache(
    kind: Literal["full", "sliding"], cells: int, layers: list[tuple[Layer, int]], settings: KvSettings, v_widest: int
) -> Cache:
    streams = 1 if settings.kv_unified else settings.n_seq_max
    k_row = sum(count * row_bytes(layer.k_width, settings.type_k) for layer, count in layers)
    v_row = sum(count * row_bytes(_v_width(layer, v_widest), settings.type_v) for layer, count in layers)
    total = sum(count for _, count in layers)
    return Cache(kind, cells, streams, total, k_row * cells * streams, v_row * cells * streams)


def _v_width(layer: Layer, v_widest: int) -> int:
    return 0 if layer.attention == "mla" else max(layer.v_width, v_widest)


def _recurrent(geometry: Geometry, settings: KvSettings) -> RecurrentState | None:
    state = geometry.recurrent
    layers = sum(count for layer, count in geometry.kinds if layer.attention == "recurrent")
    if state is None or layers == 0:
        return None
    rows = layers * settings.n_seq_max * (1 + settings.kept_states)
    return RecurrentState(
        cells=settings.n_seq_max,
        layers=len(geometry.serving),
        r_bytes=state.conv_elements * F32_BYTES * rows,
        s_bytes=state.ssm_elements * F32_BYTES * rows,
    )
