"""The rest of llama-server's memory on a CPU-only host: weights, compute buffer and the caches in RAM.

Weights and limits are exact; the compute buffer is an estimate with a stated error. What is not known is left
out and named by the caller, never counted as 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from archonctl.engines.llamacpp.kv import (
    F32_BYTES,
    VERIFIED_ARCHITECTURES,
    KvAllocation,
    KvSettings,
    layer_bytes,
    row_bytes,
)
from archonctl.engines.llamacpp.offload import Offload
from archonctl.memory.demand import Demand
from archonctl.memory.interval import MIB, Interval
from archonctl.model.geometry import Geometry, ModelFacts

if TYPE_CHECKING:
    from archonctl.engines.llamacpp.settings import Settings  # which imports this module

COMPUTE_LOW, COMPUTE_HIGH = 0.7, 1.25
"""Error of the largest stage: 324 settings of ten real widths and eight tiny models stay within it (b11434)."""
COMPUTE_SLACK_BYTES = 2 * MIB
"""Small buffers that the stages below leave out."""


@dataclass(frozen=True, slots=True)
class Widths:
    """Sizes of intermediate rows that are not part of the geometry, in elements; from header keys."""

    ff: int
    expert_ff: int
    shared_ff: int
    mla_key: int

    @classmethod
    def of(cls, model: ModelFacts, geometry: Geometry) -> Widths | None:
        """The widths in a header; None where a key is missing or differs by layer, so that nothing can be said."""
        metadata = model.metadata or {}

        def key(name: str) -> int:
            value = metadata.get(f"{geometry.architecture}.{name}", 0)
            return value if isinstance(value, int) else 0

        ff, expert_ff = key("feed_forward_length"), key("expert_feed_forward_length")
        if not (ff or (geometry.experts and expert_ff)):
            return None
        shared = key("expert_shared_feed_forward_length")
        return cls(ff, expert_ff, shared, key("attention.key_length_mla"))


def compute_buffer(geometry: Geometry, widths: Widths, settings: KvSettings, kv: KvAllocation) -> Interval:
    """Bytes of the compute buffer (``sched_reserve: CPU compute buffer size``).

    Attention masks are exact: one f16 value (f32 without flash attention) a cell and a token of the micro-batch.
    The largest stage of a layer is estimated from its widths, as graph allocation keeps two to five rows of each
    alive (measured with llama-fit-params b11434). Without flash attention the scores of one layer come on top.
    """
    masks = sum(mask_bytes(settings, kv).values())
    stage, logits = _stage(geometry, widths, settings, kv), geometry.vocab * settings.n_seq_max * F32_BYTES
    fixed, copied = masks + logits, _halved(geometry, settings, kv) if settings.flash_attn else 0
    return Interval(
        fixed + COMPUTE_LOW * max(0, stage - copied),  # the copy may lie where another stage was
        fixed + stage,
        fixed + COMPUTE_HIGH * stage + COMPUTE_SLACK_BYTES,
        "assumed",
    )


def estimated_compute(model: ModelFacts, geometry: Geometry, settings: KvSettings, kv: KvAllocation) -> Interval | None:
    """Bytes of the compute buffer in RAM; None for an architecture whose widths have no law."""
    widths = Widths.of(model, geometry) if geometry.architecture in VERIFIED_ARCHITECTURES else None
    return compute_buffer(geometry, widths, settings, kv) if widths else None


def mask_bytes(settings: KvSettings, kv: KvAllocation) -> dict[str, int]:
    """Attention masks by kind of cache: a value for each cell and token of the micro-batch."""
    size = kv.shape.n_ubatch * (2 if settings.flash_attn else F32_BYTES)
    return {cache.kind: cache.cells * size for cache in kv.caches if cache.layers}


def device_compute(
    geometry: Geometry,
    widths: Widths,
    settings: KvSettings,
    kv: KvAllocation,
    offload: Offload,
    where: Sequence[int | None],
    device: int | None,
) -> Interval:
    """Bytes of one device's compute buffer; ``where`` is the device of each layer and of the output, None is RAM.

    The masks of the kinds of attention that it has layers of, in as many copies as the inputs are kept; the stage is
    an estimate: a device with few layers needs little of it. Cells that stay in RAM (--no-kv-offload) are copied, one
    or two layers at a time. The low end is the masks alone.
    """
    if device is not None and device not in where:
        return Interval.exact(0, "assumed")
    copies = PIPELINE_COPIES if offload.pipelined(len(geometry.layers)) else 1
    mine = [layer for layer, place in zip(geometry.layers, where, strict=False) if place == device]
    kinds = {"sliding" if layer.attention == "sliding" else "full" for layer in mine if layer.attention in _WITH_CELLS}
    # RAM holds all inputs before they are copied to the devices.
    wanted = [size for kind, size in mask_bytes(settings, kv).items() if device is None or kind in kinds]
    logits = geometry.vocab * settings.n_seq_max * F32_BYTES if where[-1] == device else 0
    computes = bool(mine) or where[-1] == device or (device is None and bool(offload.overrides))
    stage = _stage(geometry, widths, settings, kv) if computes else 0
    moved = max(layer_bytes(geometry, settings, kv)) if device is not None and kinds and not offload.kv_offload else 0
    fixed, inputs = copies * sum(wanted), copies * kv.shape.n_ubatch * geometry.hidden * F32_BYTES
    most = fixed + logits + 3 * moved + COMPUTE_HIGH * stage + 2 * inputs + COMPUTE_SLACK_BYTES
    return Interval(fixed, fixed + logits + moved + stage, most, "assumed")


PIPELINE_COPIES = 4
"""GGML_SCHED_MAX_COPIES: inputs are kept this often where devices work on several micro-batches at once."""
_WITH_CELLS = ("full", "mla", "sliding")


def _stage(geometry: Geometry, widths: Widths, settings: KvSettings, kv: KvAllocation) -> int:
    """Bytes of the largest stage of a layer."""
    tokens = kv.shape.n_ubatch
    scores = _halved(geometry, settings, kv) if settings.flash_attn else _scores(geometry, settings, kv)
    feed_forward = max(_dense_row(geometry, widths), _expert_row(geometry, widths)) * tokens * F32_BYTES
    attention = _attention_row(geometry, widths) * tokens * F32_BYTES + scores
    return max(feed_forward, attention)


def _halved(geometry: Geometry, settings: KvSettings, kv: KvAllocation) -> int:
    """Flash attention takes no f32 rows: one layer is copied as f16 (src/llama-graph.cpp ``build_attn_mha``)."""
    full = [layer for layer in geometry.layers if layer.attention in ("full", "mla")]
    k = max((layer.k_width for layer in full), default=0) if settings.type_k == "f32" else 0
    v = max((layer.v_width for layer in full), default=0) if settings.type_v == "f32" else 0
    return kv.shape.n_ctx * (k + v) * 2


def _scores(geometry: Geometry, settings: KvSettings, kv: KvAllocation) -> int:
    """Without flash attention: scores of one layer, and with MLA a transposed copy of its latent rows."""
    scores = kv.shape.n_ctx_seq * kv.shape.n_ubatch * geometry.heads * F32_BYTES
    latent = max((layer.head_dim_v for layer in geometry.layers if layer.attention == "mla"), default=0)
    return scores + kv.shape.n_ctx * row_bytes(latent, settings.type_k)


def _dense_row(geometry: Geometry, widths: Widths) -> int:
    return 3 * widths.ff + 5 * geometry.hidden


def _expert_row(geometry: Geometry, widths: Widths) -> int:
    """Rows of the routed experts of one token: gate, up and their product, or two copies of every expert's output."""
    routed_ff, routed_hidden = geometry.experts_used * widths.expert_ff, geometry.experts_used * geometry.hidden
    return max(3 * routed_ff + routed_hidden + geometry.hidden, 2 * routed_hidden + routed_ff + 3 * geometry.hidden)


def _attention_row(geometry: Geometry, widths: Widths) -> int:
    row = 0
    for layer in geometry.layers:
        if layer.attention == "mla":
            queries = geometry.heads * (2 * layer.k_width + widths.mla_key)
            row = max(row, queries + 5 * geometry.hidden)
        elif layer.k_width:
            queries = geometry.heads * layer.head_dim_k
            row = max(row, 5 * geometry.hidden + 2 * queries + layer.k_width + layer.v_width)
    return row


def checkpoint_bytes(geometry: Geometry, settings: KvSettings, kv: KvAllocation) -> int:
    """Bytes of one context checkpoint: what cannot be rolled back of one sequence; 0 where nothing is kept.

    Models with a sliding window save the window's rows, recurrent ones their state (tools/server/server-context.cpp
    ``create_checkpoint`` with LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY; the few bytes of bookkeeping a cell are left out).
    """
    state = kv.recurrent.bytes // kv.recurrent.cells if kv.recurrent else 0
    if settings.swa_full:
        return state
    sliding = [layer for layer in geometry.layers if layer.attention == "sliding"]
    rows = min(max((layer.window for layer in sliding), default=0), kv.shape.n_ctx_seq)
    row = sum(row_bytes(la.k_width, settings.type_k) + row_bytes(la.v_width, settings.type_v) for la in sliding)
    return state + rows * row


def weights(model: ModelFacts) -> Demand:
    """All tensors, in RAM: mapped from the file, so that the kernel can drop and re-read them under pressure."""
    by_dtype: dict[str, int] = {}
    for part in model.tensor_bytes:
        by_dtype[part.dtype] = by_dtype.get(part.dtype, 0) + part.bytes
    largest = max(by_dtype, key=lambda dtype: by_dtype[dtype], default="")
    size, detail = (model.weight_bytes, f"{model.tensors:,} tensors") if by_dtype else (model.file_bytes, "whole file")
    return Demand("weights", "host", largest or "unknown", size, detail, "header")


def cache_dtype(kv: KvSettings) -> str:
    """The dtype of K and V, or both."""
    return kv.type_k if kv.type_k == kv.type_v else f"{kv.type_k}/{kv.type_v}"


def cache_demands(settings: Settings, kv: KvAllocation) -> list[Demand]:
    """One demand for each cache that is allocated at boot, exact."""
    dtype = cache_dtype(settings.kv)
    found = [
        Demand(
            "kv_cache",
            "host",
            dtype,
            cache.bytes,
            f"{cache.kind} attention, {cache.layers} layers, {cache.streams} x {cache.cells:,} cells",
        )
        for cache in kv.caches
        if cache.layers
    ]
    if kv.recurrent:
        cells, size = kv.recurrent.cells, kv.recurrent.bytes
        found.append(Demand("kv_cache", "host", "f32", size, f"recurrent state of {cells} sequences"))
    return found


def compute_demand(bounds: Interval) -> Demand:
    """The compute buffer, at its best estimate, with the error in words."""
    low, high = bounds.low / MIB, bounds.high / MIB
    detail = f"compute buffer, estimated between {low:,.0f} and {high:,.0f} MiB"
    ends = (int(bounds.low), int(bounds.high))
    return Demand("activation", "host", "f32", int(bounds.best), detail, "assumed", None, *ends)


def ram_cache_demands(settings: Settings, checkpoint: int) -> list[Demand]:
    """Caches that grow while the server runs, at the limit that they are allowed; the low end is at boot: nothing."""
    found: list[Demand] = []
    if settings.cache_ram_mib > 0:
        size = settings.cache_ram_mib * MIB
        found.append(Demand("ddr_cache", "host", "", size, "prompt cache, limit (cache-ram)", "declared", None, 0))
    if limit := checkpoint * settings.checkpoints * settings.kv.n_seq_max:
        text = f"context checkpoints, limit ({settings.checkpoints} a slot, {checkpoint / MIB:,.1f} MiB each)"
        found.append(Demand("ddr_cache", "host", "", limit, text, "computed", None, 0))
    return found
