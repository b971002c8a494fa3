"""From a model's geometry to the cache specs of one rank, as vLLM builds them.

Read from vLLM 0.32.0: ``config/model.py`` (``get_num_kv_heads``), ``distributed/utils.py`` (``get_pp_indices``),
``platforms/interface.py`` (``_align_hybrid_block_size``), ``model_executor/layers/mamba/mamba_utils.py`` (state
shapes and dtypes) and ``model_executor/layers/attention/mla_attention.py`` (one latent row, on every rank).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, chain

from archonctl.engines.vllm.groups import Bucket, LayerSpec
from archonctl.engines.vllm.kv import ceil_div
from archonctl.errors import DeclarationError
from archonctl.model.geometry import Geometry, Layer, Recurrent

KV_BYTES = {"auto": 0, "fp8_ds_mla": 1, "fp8": 1, "fp8_e4m3": 1, "fp8_e5m2": 1, "fp8_inc": 1}
KV_BYTES |= {"bfloat16": 2, "float16": 2, "bf16": 2, "fp16": 2, "half": 2, "float": 4, "float32": 4}
"""Bytes an element by ``--kv-cache-dtype``; 0 is "as the model". Packed 4-bit layouts go by backend: not covered."""

DS_MLA_ROW_BYTES = 656
"""A latent row in the fp8_ds_mla layout: 512 fp8, 4 scales of 4 bytes, 64 bf16 (vLLM FlashMLA sparse backend)."""
INDEXER_SCALE_BYTES = 4
"""The fp8 scale kept with each 128 elements of an indexer's key (vLLM ``DeepseekV32IndexerCache``)."""


@dataclass(frozen=True, slots=True)
class RankSettings:
    """What decides the specs of a rank. ``block_tokens`` as set, or as the backend prefers (16 on CUDA).

    ``kernel_tokens`` is what hybrid blocks are rounded up to. ``hybrid_block_tokens`` is a block size that the
    log printed ("Setting attention block size to N tokens"), which then needs no state sizes; 0: derive it.
    ``partition`` is VLLM_PP_LAYER_PARTITION. ``ssm_bytes`` is --mamba-ssm-cache-dtype; 0: as the model asks.
    ``latent_step`` is what the elements of a latent row are rounded up to.
    """

    tp: int = 1
    pp: int = 1
    kv_dtype: str = "auto"
    model_bytes: int = 2
    block_tokens: int = 16
    kernel_tokens: int = 16
    hybrid_block_tokens: int = 0
    spec_tokens: int = 0
    draft_layers: int = 0
    ssm_bytes: int = 0
    mla: bool = True
    latent_step: int = 1
    partition: tuple[int, ...] = ()


def element_bytes(settings: RankSettings) -> int:
    """Bytes an element of the cache. Raises DeclarationError ``kv-dtype-unknown``."""
    if settings.kv_dtype not in KV_BYTES:
        known = ", ".join(sorted(KV_BYTES))
        raise DeclarationError("kv-dtype-unknown", f"no law for KV dtype {settings.kv_dtype!r}", hint=f"known: {known}")
    return KV_BYTES[settings.kv_dtype] or settings.model_bytes


def stage_layers(layers: int, pp: int, partition: Sequence[int] = ()) -> tuple[int, ...]:
    """Layers of each pipeline stage: what does not divide goes to the stages before the last one.

    Raises DeclarationError ``pp-partition-invalid`` where a given partition is of another model.
    """
    if pp > layers:
        raise DeclarationError("pp-partition-invalid", f"{pp} pipeline stages for {layers} layers")
    if partition:
        if len(partition) != pp or sum(partition) != layers:
            where = f"{len(partition)} stages of {sum(partition)} layers"
            raise DeclarationError("pp-partition-invalid", f"the partition is {where}; pp is {pp}, layers are {layers}")
        return tuple(partition)
    parts = [layers // pp] * pp
    for extra in range(layers % pp):
        parts[-extra - 2] += 1
    return tuple(parts)


def rank_buckets(geometry: Geometry, settings: RankSettings) -> tuple[Bucket, ...]:
    """Cache specs of one tensor-parallel rank, with the pipeline stage of every layer.

    Raises DeclarationError ``kv-dtype-unknown``, ``pp-partition-invalid``, ``kv-heads-unknown`` (a latent
    model that this vLLM runs without its latent) or ``kv-state-unknown`` (a hybrid whose
    state sizes are not known and whose block size was not printed).
    """
    serving = geometry.serving
    if settings.draft_layers:
        serving = (*serving, *_draft(geometry, settings.draft_layers))
    size = element_bytes(settings)
    if not settings.mla and any(layer.attention == "mla" for layer in serving):
        raise DeclarationError(
            "kv-heads-unknown",
            "this vLLM keeps every head of this model, not a latent row, and the widths of its heads are not known",
            hint="a boot and its ledger tell the tokens",
        )
    block, padded, state = _blocks(geometry, serving, settings, size)
    found: dict[LayerSpec, tuple[int, ...]] = {}
    for layer, stages in _alike(geometry, settings):
        specs = _specs(layer, settings, size, block, geometry.indexer_dim)
        if layer.attention == "recurrent":
            specs = [LayerSpec("mamba", block, state_bytes=state, padded_bytes=padded)]
        for spec in specs:
            found[spec] = found.get(spec, ()) + stages
    return tuple(Bucket(spec, stages) for spec, stages in found.items())


def _alike(geometry: Geometry, settings: RankSettings) -> list[tuple[Layer, tuple[int, ...]]]:
    """One layer of each kind, in the order of the first of it, with the stages of all: most layers are like another."""
    parts = stage_layers(len(geometry.serving), settings.pp, settings.partition)
    if settings.pp == 1:
        found = [(layer, (0,) * count) for layer, count in geometry.kinds]
    else:
        starts = (0, *accumulate(parts))
        held = [Counter(geometry.kind_of[starts[s] : starts[s + 1]]) for s in range(settings.pp)]
        found = [
            (layer, tuple(chain.from_iterable((stage,) * counts[kind] for stage, counts in enumerate(held))))
            for kind, (layer, _) in enumerate(geometry.kinds)
        ]
    drafted = _draft(geometry, settings.draft_layers) if settings.draft_layers else ()
    return [*found, *((layer, (settings.pp - 1,)) for layer in drafted)]


def _specs(layer: Layer, settings: RankSettings, size: int, block: int, indexer: int) -> list[LayerSpec]:
    if layer.attention == "mla":
        rows = [LayerSpec("mla", block, latent_bytes(layer, settings, size, indexer))]
        if indexer:
            rows.append(LayerSpec("mla", block, indexer + ceil_div(indexer, 128) * INDEXER_SCALE_BYTES))
        return rows
    if layer.attention in ("full", "sliding", "chunked"):
        kind = layer.attention
        heads = max(1, layer.kv_heads // settings.tp)
        return [LayerSpec(kind, block, token_bytes(layer, settings.tp, size), layer.window, heads=heads)]
    return []


def latent_bytes(layer: Layer, settings: RankSettings, size: int, indexer: int = 0) -> int:
    """Bytes of one latent row: the same on every rank, since MLA has one head to share out."""
    if settings.kv_dtype == "fp8_ds_mla" or (indexer and size == 1):
        return DS_MLA_ROW_BYTES  # the sparse kernels read no other fp8 layout
    return ceil_div(layer.k_width, settings.latent_step) * settings.latent_step * size


def token_bytes(layer: Layer, tp: int, size: int) -> int:
    """Bytes a token of K and V on one rank; heads are replicated where there are more ranks than heads."""
    return max(1, layer.kv_heads // tp) * (layer.head_dim_k + layer.head_dim_v) * size


def state_bytes(state: Recurrent, settings: RankSettings) -> int:
    """Bytes of one recurrent state of one layer on one rank: convolution window and state-space part."""
    rows = max(state.conv_kernel - 1, 1)
    width = state.conv_elements // rows
    if state.kind in ("mamba2", "") and state.groups and state.groups % settings.tp:
        width += 2 * (settings.tp - state.groups) * state.state_size
    default = 4 if state.kind == "kda" else settings.model_bytes
    ssm = settings.ssm_bytes or state.ssm_element_bytes or default
    # A drafted token is one more row of the window (mamba1 keeps none).
    rows += 0 if state.kind == "mamba1" else settings.spec_tokens
    return width // settings.tp * rows * settings.model_bytes + state.ssm_elements // settings.tp * ssm


def _draft(geometry: Geometry, count: int) -> tuple[Layer, ...]:
    """Layers of multi-token prediction: those of the header, or copies of the last layer with attention."""
    own = geometry.layers[len(geometry.layers) - geometry.nextn_layers :]
    attending = [layer for layer in geometry.layers if layer.attention in ("full", "mla")]
    usable = [layer for layer in own if layer.attention in ("full", "mla")] or attending[-1:]
    return tuple(usable[i % len(usable)] for i in range(count)) if usable else ()


def _blocks(geometry: Geometry, serving: Sequence[Layer], settings: RankSettings, size: int) -> tuple[int, int, int]:
    """Tokens a block, and for recurrent layers their padded page and state: an attention page holds a whole state."""
    if not any(layer.attention == "recurrent" for layer, _ in geometry.kinds):
        return settings.block_tokens, 0, 0
    attending = [layer for layer in serving if layer.attention in ("full", "mla")]
    state = 0 if geometry.recurrent is None else state_bytes(geometry.recurrent, settings)
    if not attending:
        if not state:
            raise DeclarationError("kv-state-unknown", "the size of the recurrent state is not known")
        return settings.block_tokens, 0, state
    one = attending[0]
    mla = one.attention == "mla"
    row = latent_bytes(one, settings, size) if mla else token_bytes(one, settings.tp, size)
    if settings.hybrid_block_tokens:
        block = settings.hybrid_block_tokens
    elif state:
        step = max(settings.kernel_tokens, settings.block_tokens, 128 if mla else 1)
        block = max(settings.block_tokens, step * ceil_div(state, step * row))
    else:
        raise DeclarationError(
            "kv-state-unknown",
            "the size of the recurrent state is not known, so neither is the block size that it forces",
            hint="give the state's dimensions, or a log with 'Setting attention block size to N tokens'",
        )
    return block, block * row, state
