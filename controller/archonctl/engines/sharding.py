"""How tensor parallelism shares weights out: what divides, what every rank holds whole, what is padded."""

from __future__ import annotations

from archonctl.memory.interval import GIB, Interval
from archonctl.model.geometry import Geometry, Layer, ModelFacts

VOCABULARY_PADDING = 64
"""DEFAULT_VOCAB_PADDING_SIZE of vllm/model_executor/layers/vocab_parallel_embedding.py; SGLang has the same."""


def attention_share(model: ModelFacts, tp: int) -> float:
    """Share of the attention weights on one rank: ``1 / tp``, and more where a part of them cannot be divided.

    A KV head is the least that a rank holds of keys and values (QKVParallelLinear: num_kv_head_replicas); the
    projections into a latent are whole on each (ReplicatedLinear in vllm/model_executor/models/deepseek_v2.py). Latent
    attention whose config does not name its widths counts as divided.
    """
    geometry = model.geometry
    if geometry is None or tp == 1:
        return 1 / tp
    pairs = [pair for layer in geometry.serving if (pair := _elements(model, geometry, layer, tp))]
    whole, mine = sum(pair[0] for pair in pairs), sum(pair[1] for pair in pairs)
    return mine / whole if whole else 1 / tp


def padded_vocabulary(geometry: Geometry | None) -> float:
    """How much larger embedding and output are for their padding; 1.0 where there is none."""
    if geometry is None or not geometry.vocab:
        return 1.0
    return -(-geometry.vocab // VOCABULARY_PADDING) * VOCABULARY_PADDING / geometry.vocab


def offloaded(layer_bytes: float, layers: int, gib: float) -> Interval:
    """Bytes of a rank's ``layers``, ``layer_bytes`` in all, that --cpu-offload-gb keeps in RAM.

    Parameter by parameter until the limit is reached or passed, within the layers alone: at most one parameter more,
    which is no larger than a layer (vllm/model_executor/offloader/uva.py, sglang/srt/utils/offloader.py).
    """
    if not gib:
        return Interval.exact(0)
    asked = min(gib * GIB, layer_bytes)
    return Interval(asked, asked, min(layer_bytes, asked + layer_bytes / max(1, layers)), "computed")


def _elements(model: ModelFacts, geometry: Geometry, layer: Layer, tp: int) -> tuple[float, float] | None:
    """Attention weights of one layer, in elements: all of them, and those of one rank."""
    hidden, heads = geometry.hidden, geometry.heads
    if layer.attention == "mla":
        return _latent(model, hidden, heads, layer, tp)
    if layer.attention in ("full", "sliding", "chunked") and layer.kv_heads:
        queries, keys = 2 * heads * layer.head_dim_k * hidden, (layer.k_width + layer.v_width) * hidden
        return queries + keys, queries / tp + keys * max(1 / tp, 1 / layer.kv_heads)
    return None


def _latent(model: ModelFacts, hidden: int, heads: int, layer: Layer, tp: int) -> tuple[float, float] | None:
    metadata = model.metadata or {}

    def key(name: str) -> int:
        value = metadata.get(name, metadata.get(f"text_config.{name}", 0))
        return value if isinstance(value, int) else 0

    nope, rope, values, rank = (
        key(name) for name in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "q_lora_rank")
    )
    if not (nope and rope and values):
        return None
    down = hidden * layer.k_width + hidden * rank
    queries = (rank or hidden) * heads * (nope + rope)
    divided = queries + (layer.k_width - rope) * heads * (nope + values) + heads * values * hidden
    return down + divided, down + divided / tp
