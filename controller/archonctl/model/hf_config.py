"""From a Hugging Face ``config.json`` to the geometry that decides a cache; never by a guess.

What differs between architectures is data (hf_architectures.toml). A ``model_type`` without a row there, or a layer
kind that no law covers, is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from archonctl.errors import ModelError
from archonctl.model.geometry import AttentionKind, Geometry, Layer, Recurrent, RecurrentKind
from archonctl.model.hf_keys import MAX_FIGURE, MAX_LAYERS, HfKeys, table
from archonctl.model.hf_state import recurrent_state

_NESTED = ("text_config", "llm_config", "language_config", "thinker_config", "language_model")
_LAYER_TYPES: dict[str, AttentionKind] = {
    "full_attention": "full",
    "attention": "full",
    "global": "full",
    "sliding_attention": "sliding",
    "local": "sliding",
    "chunked_attention": "chunked",
    "linear_attention": "recurrent",
    "mamba": "recurrent",
    "mamba2": "recurrent",
    "conv": "recurrent",
    "indexed_attention": "full",
    "mlp": "none",
    "moe": "none",
}
_HYBRID_LETTERS: dict[str, AttentionKind] = {"M": "recurrent", "*": "full", "-": "none", "E": "none"}
_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


_CONTEXT = ("max_position_embeddings", "max_sequence_length", "seq_length", "model_max_length")
_EXPERTS = ("n_routed_experts", "num_local_experts", "num_experts", "moe_num_experts")
_EXPERTS_USED = (
    *("num_experts_per_tok", "num_experts_per_token", "experts_per_token", "top_k_experts"),
    *("moe_topk", "moe_k", "num_selected_experts"),
)


@dataclass(frozen=True, slots=True)
class HfLaw:
    """One row of hf_architectures.toml; its comments say what each field means."""

    model_types: tuple[str, ...]
    attention: str
    source: str
    local: str = ""
    every: int = 0
    shares: bool = False
    global_dims: bool = False
    shared_experts: int = 0
    state: RecurrentKind = ""
    pure: bool = False


@cache
def hf_laws() -> Mapping[str, HfLaw]:
    """Law by ``model_type``."""
    rows = [HfLaw(**{**row, "model_types": tuple(row["model_types"])}) for row in table()["law"]]
    return {name: row for row in rows for name in row.model_types}


def hf_geometry(config: Mapping[str, object], *, where: str = "config.json") -> Geometry:
    """Geometry of the text model of a config.

    Raises ModelError ``model-architecture-unknown`` without a law, ``model-geometry-invalid`` for figures that are
    missing or make no cache.
    """
    keys = HfKeys.of(text_config(config), where)
    law = hf_laws().get(keys.model_type)
    if law is None:
        raise ModelError(
            "model-architecture-unknown",
            f"no law for model_type {keys.model_type[:80]!r}; this release knows {len(hf_laws())} of them",
            where=where,
            hint="its cache cannot be planned: start it once and read its boot log",
        )
    count = _count(keys)
    kinds = _kinds(keys, law, count)
    recurrent: Recurrent | None = recurrent_state(keys, law.state) if "recurrent" in kinds else None
    layers = tuple(_layer(keys, law, i, kind) for i, kind in enumerate(kinds))
    dtype = (
        keys.word("torch_dtype") or keys.word("dtype") or str(config.get("torch_dtype") or config.get("dtype") or "")
    )
    return Geometry(
        architecture=keys.model_type,
        name=str(config.get("_name_or_path") or ""),
        layers=layers,
        hidden=keys.whole("hidden_size", "d_model", "n_embd"),
        heads=keys.maybe("num_attention_heads", "n_head"),
        vocab=keys.maybe("vocab_size"),
        trained_context=keys.maybe(*_CONTEXT),
        experts=(experts := keys.most(*_EXPERTS)),
        experts_used=keys.most(*_EXPERTS_USED),
        experts_shared=_shared_experts(keys, law) if experts else 0,
        recurrent=recurrent,
        element_bytes=_BYTES.get(dtype.removeprefix("torch."), 0),
        indexer_dim=_indexer(keys, where) if law.attention == "mla" else 0,
        sharing_layers=_sharing(keys, law, count),
    )


def _indexer(keys: HfKeys, where: str) -> int:
    """Width of an indexer's keys, which every layer keeps: a config in which some layers take another's is refused.

    Source: vllm/model_executor/models/deepseek_v2.py (``_skip_topk``: such a layer has no indexer and no cache for it).
    """
    shared = "shared" in (keys.items("indexer_types") or ()) or "S" in keys.word("index_topk_pattern")
    if shared or keys.maybe("index_topk_freq") > 1:
        raise ModelError(
            "model-architecture-unknown",
            f"{keys.model_type}: some layers take the indexer of another one, and no law covers a cache of that kind",
            where=where,
            hint="its cache cannot be planned: start it once and read its boot log",
        )
    return keys.maybe("index_head_dim")


def text_config(config: Mapping[str, object]) -> Mapping[str, object]:
    """The part of a multimodal config that describes the language model."""
    for _ in range(3):
        inner = next((config[name] for name in _NESTED if isinstance(config.get(name), dict)), None)
        if not isinstance(inner, dict):
            break
        config = inner
    return config


def _count(keys: HfKeys) -> int:
    """Layers: as counted, else as many as are listed."""
    listed = keys.items("layers_block_type") or keys.word("hybrid_override_pattern")
    if listed and not keys.maybe("num_hidden_layers"):
        return min(len(listed), MAX_LAYERS)
    return keys.whole("num_hidden_layers", "n_layer", "n_layers", "num_layers", limit=MAX_LAYERS)


def _shared_experts(keys: HfKeys, law: HfLaw) -> int:
    counted = keys.most("n_shared_experts", "num_shared_experts", "num_shared_expert", "moe_num_shared_experts")
    sized = keys.maybe("shared_expert_intermediate_size", "shared_intermediate_size")
    return counted or law.shared_experts or int(bool(sized))


def _kinds(keys: HfKeys, law: HfLaw, count: int) -> tuple[AttentionKind, ...]:
    kinds = _own_kinds(keys, law, count)
    shared = _sharing(keys, law, count)
    return (*kinds[: count - shared], *_all("none", shared))


def _sharing(keys: HfKeys, law: HfLaw, count: int) -> int:
    return keys.maybe("num_kv_shared_layers", limit=count - 1) if law.shares else 0


def _own_kinds(keys: HfKeys, law: HfLaw, count: int) -> tuple[AttentionKind, ...]:
    if law.pure:
        return _all("recurrent", count)
    listed = keys.items("layer_types") or keys.items("layers_block_type")
    if listed is not None:
        unknown = {str(kind)[:40] for kind in listed if str(kind) not in _LAYER_TYPES}
        if unknown or len(listed) != count:
            raise keys.invalid(f"layer_types has {len(listed)} entries for {count} layers, unknown {sorted(unknown)}")
        return tuple(_LAYER_TYPES[str(kind)] for kind in listed)
    if law.state:
        return _hybrid(keys, count)
    window = keys.maybe("sliding_window") if law.local not in ("", "chunked") else keys.maybe("attention_chunk_size")
    if not law.local or not window or window >= (keys.maybe(*_CONTEXT) or MAX_FIGURE):
        return _all("full", count)  # a window that no sequence outgrows is none
    return tuple(_local_kind(keys, law, i) for i in range(count))


def _all(kind: AttentionKind, count: int) -> tuple[AttentionKind, ...]:
    return (kind,) * count


def _local_kind(keys: HfKeys, law: HfLaw, index: int) -> AttentionKind:
    if law.local == "all":
        return "sliding"
    if law.local == "even":
        return "full" if index % 2 else "sliding"
    if law.local == "chunked":
        listed = keys.items("no_rope_layers")
        with_rope = bool(listed[index]) if listed and index < len(listed) else (index + 1) % 4 != 0
        return "chunked" if with_rope else "full"
    letters = keys.word("sliding_window_pattern")
    if letters:
        return "full" if letters[index % len(letters)].upper() == "G" else "sliding"
    every = keys.maybe("sliding_window_pattern", "_sliding_window_pattern", "global_attn_every_n_layers") or law.every
    return "full" if (index + 1) % every == 0 else "sliding"


def _hybrid(keys: HfKeys, count: int) -> tuple[AttentionKind, ...]:
    """Which layers of a hybrid attend, by whichever key the config has."""
    if letters := keys.word("hybrid_override_pattern"):
        if len(letters) != count or set(letters) - _HYBRID_LETTERS.keys():
            raise keys.invalid(f"hybrid_override_pattern has {len(letters)} letters for {count} layers")
        return tuple(_HYBRID_LETTERS[letter] for letter in letters)
    attending: set[int]
    if every := keys.maybe("full_attention_interval"):
        attending = {i for i in range(count) if (i + 1) % every == 0}
    elif every := keys.maybe("attn_layer_period"):
        attending = {i for i in range(count) if i % every == keys.maybe("attn_layer_offset")}
    elif (listed := keys.items("attn_layer_indices")) is not None:
        attending = {i for i in listed if isinstance(i, int)}
    elif (listed := keys.items("attn_type_list")) is not None:
        attending = {i for i, kind in enumerate(listed) if kind == 1}
    elif (listed := keys.part("linear_attn_config").items("full_attn_layers")) is not None:
        attending = {i - 1 for i in listed if isinstance(i, int)}  # counted from 1 there
    elif (listed := keys.items("full_attn_idxs")) is not None:
        attending = {i for i in listed if isinstance(i, int)}
    else:
        raise keys.invalid(f"nothing says which of the {count} layers attend")
    return tuple("full" if i in attending else "recurrent" for i in range(count))


def _layer(keys: HfKeys, law: HfLaw, index: int, kind: AttentionKind) -> Layer:
    if kind in ("recurrent", "none"):
        return Layer(index, kind)
    if law.attention == "mla":
        latent = keys.whole("kv_lora_rank")
        width = latent + keys.maybe("qk_rope_head_dim")
        return Layer(index, "mla", 1, width, latent, width, 0)
    heads = keys.maybe("num_attention_heads", "n_head")
    kv_heads = keys.maybe("num_key_value_heads", "multi_query_group_num", "num_kv_heads") or heads
    dim = keys.maybe("head_dim", "attention_head_dim") or (keys.whole("hidden_size", "n_embd") // heads if heads else 0)
    if law.global_dims and kind == "full":
        dim = keys.maybe("global_head_dim") or dim
        own = keys.maybe("num_global_key_value_heads") if keys.config.get("attention_k_eq_v") is True else 0
        kv_heads = own or kv_heads
    if not kv_heads or not dim:
        raise keys.invalid("num_key_value_heads and head_dim are not both known")
    window = {"sliding": "sliding_window", "chunked": "attention_chunk_size"}.get(kind)
    return Layer(index, kind, kv_heads, dim, dim, kv_heads * dim, kv_heads * dim, keys.whole(window) if window else 0)
