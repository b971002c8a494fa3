"""How many parameters a language model has, by class, from its config.json: the shapes of transformers 5.19.

Written apart from the package, so that the shipped catalogue's figures can be held against it. Shapes as in
``models/<type>/modeling_<type>.py``; norms and biases are counted where they are more than a millionth.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from archonctl.model.geometry import Geometry, Layer, TensorClass
from archonctl.model.hf_config import hf_geometry, text_config
from archonctl.model.hf_keys import HfKeys

_GATED_QUERY = ("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text")
_NORMED = ("qwen3", "gemma3", "gemma4")
"""Queries and keys have a norm of their own, as wide as a head."""
_BIASED = ("qwen2", "gpt_oss", "seed_oss", "glm4_moe")


def parameters(config: Mapping[str, object]) -> dict[TensorClass, int]:
    """Parameters by class, without prediction layers and without towers of other senses."""
    text, geometry = text_config(config), hf_geometry(config)
    keys = HfKeys.of(text, "config.json")
    count: Counter[TensorClass] = Counter()
    for layer in geometry.layers:
        _attention(count, keys, geometry, layer)
        if layer.attention == "recurrent":
            count["recurrent"] += _recurrent(keys, geometry)
        _feed_forward(count, keys, geometry, layer.index)
        count["other"] += geometry.hidden * (4 if keys.model_type.startswith("gemma") else 2)
    count["other"] += geometry.hidden
    count["embedding"] += geometry.vocab * geometry.hidden
    _gemma3n(count, keys, geometry)
    if not _tied(config, keys):
        count["output"] += geometry.vocab * geometry.hidden
    return {cls: size for cls, size in sorted(count.items()) if size}


def active(found: Mapping[TensorClass, int], geometry: Geometry) -> int:
    """What one token passes through: all but the experts that its router leaves out."""
    routed = found.get("routed_experts", 0)
    used = routed * geometry.experts_used // geometry.experts if geometry.experts else 0
    return sum(found.values()) - routed + used


def _tied(config: Mapping[str, object], keys: HfKeys) -> bool:
    said = keys.config.get("tie_word_embeddings", config.get("tie_word_embeddings"))
    return said is True or (said is None and keys.model_type.startswith(("gemma", "cohere")))


def _attention(count: Counter[TensorClass], keys: HfKeys, geometry: Geometry, layer: Layer) -> None:
    hidden, heads = geometry.hidden, geometry.heads
    if layer.attention == "mla":
        nope, rope, value = keys.whole("qk_nope_head_dim"), geometry.rope_dim, keys.whole("v_head_dim")
        latent, rank = geometry.latent_dim, keys.maybe("q_lora_rank")
        query = hidden * rank + rank * heads * (nope + rope) + rank if rank else hidden * heads * (nope + rope)
        count["attention"] += query + hidden * (latent + rope) + latent
        count["attention"] += latent * heads * (nope + value) + heads * value * hidden
        if index_heads := keys.maybe("index_n_heads"):
            dim = geometry.indexer_dim
            count["attention"] += rank * index_heads * dim + hidden * dim + hidden * index_heads
    elif layer.attention in ("full", "sliding", "chunked") or (keys.model_type.startswith("gemma3n")):
        kv, dim = layer.kv_heads, layer.head_dim_k
        if layer.attention == "none":  # reads the rows of an earlier layer, but has its own matrices
            kv, dim = keys.whole("num_key_value_heads"), keys.whole("head_dim")
        queries = 2 if keys.model_type in _GATED_QUERY else 1
        shared = keys.config.get("attention_k_eq_v") is True and layer.attention == "full"
        count["attention"] += hidden * dim * (heads * (queries + 1) + kv * (1 if shared else 2))
        if keys.model_type.startswith(_NORMED):
            count["other"] += 2 * dim
        if keys.model_type in _BIASED and keys.config.get("attention_bias") is not False:
            count["attention"] += dim * (heads + 2 * kv)


def _recurrent(keys: HfKeys, geometry: Geometry) -> int:
    state, hidden = geometry.recurrent, geometry.hidden
    assert state is not None
    inner, heads, groups, size = state.inner_size, state.time_step_rank, state.groups, state.state_size
    if state.kind == "gated_delta_net":
        width = inner + 2 * groups * size
        projections = hidden * (width + inner + 2 * heads) + inner * hidden
        return projections + width * state.conv_kernel + 2 * heads + keys.whole("linear_value_head_dim")
    assert state.kind == "mamba2"
    width = inner + 2 * groups * size
    return hidden * (inner + width + heads) + inner * hidden + width * (state.conv_kernel + 1) + 3 * heads + inner


def _feed_forward(count: Counter[TensorClass], keys: HfKeys, geometry: Geometry, index: int) -> None:
    hidden, kind = geometry.hidden, keys.model_type
    if pattern := keys.word("hybrid_override_pattern"):
        if pattern[index] == "-":
            count["dense_ffn"] += 2 * hidden * keys.whole("intermediate_size")
        elif pattern[index] == "E":
            _experts(count, keys, geometry)
        return
    if _is_mixture(keys, geometry, index):
        _experts(count, keys, geometry)
        if kind != "gemma4_text":
            return
    widths = keys.items("intermediate_size")
    width = widths[index] if widths else keys.maybe("intermediate_size_mlp", "intermediate_size")
    if kind == "granitemoehybrid":
        width = keys.whole("shared_intermediate_size")
    assert isinstance(width, int)
    count["dense_ffn"] += 3 * hidden * width


def _is_mixture(keys: HfKeys, geometry: Geometry, index: int) -> bool:
    if not geometry.experts or index < keys.maybe("first_k_dense_replace"):
        return False
    step = keys.maybe("interleave_moe_layer_step", "decoder_sparse_step", "moe_layer_freq") or 1
    return (index + 1) % step == 0 and index not in (keys.items("mlp_only_layers") or ())


def _experts(count: Counter[TensorClass], keys: HfKeys, geometry: Geometry) -> None:
    hidden, number, kind = geometry.hidden, geometry.experts, keys.model_type
    matrices = 2 if kind == "nemotron_h" else 3
    width = keys.maybe("moe_intermediate_size", "intermediate_size")
    latent = keys.maybe("moe_latent_size")
    count["routed_experts"] += number * matrices * (latent or hidden) * width
    count["other"] += hidden * number + 2 * hidden * latent
    if kind == "gpt_oss":
        count["routed_experts"] += number * (2 * width + hidden)
    if kind == "gemma4_text":
        count["other"] += 3 * hidden
    shared = keys.maybe("shared_expert_intermediate_size", "shared_intermediate_size")
    shared = shared or keys.maybe("moe_shared_expert_intermediate_size") or geometry.experts_shared * width
    count["shared_experts"] += matrices * hidden * shared


def _gemma3n(count: Counter[TensorClass], keys: HfKeys, geometry: Geometry) -> None:
    """Per-layer embeddings, AltUp and LAuReL."""
    if not keys.model_type.startswith("gemma3n"):
        return
    hidden, width, layers = geometry.hidden, keys.whole("hidden_size_per_layer_input"), len(geometry.layers)
    count["embedding"] += keys.whole("vocab_size_per_layer_input") * layers * width
    inputs = keys.whole("altup_num_inputs")
    count["other"] += hidden * layers * width + 2 * (inputs - 1) * hidden * hidden
    count["other"] += layers * (2 * hidden * keys.whole("laurel_rank") + 2 * hidden * width + 4 * inputs * inputs)
