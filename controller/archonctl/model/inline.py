"""A geometry from the short description that people write beside a boot log, and of public models by name.

``{"layers": 64, "full_attention_layers": 16, "kv_heads": 4, "head_dim": 256}``: many spellings, often with gaps.
A gap is filled from the table of public models where the name is known and what is stated agrees with it; what is
still missing is refused, never guessed.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import cast

from archonctl.errors import ModelError
from archonctl.model.geometry import AttentionKind, Geometry, Layer, Recurrent
from archonctl.model.hf_config import hf_geometry, text_config

MAX_LAYERS = 1024

_ALIASES = {
    "layers": ("layers", "num_hidden_layers", "n_layers", "n_layer", "num_layers", "hidden_layers", "block_count"),
    "heads": ("heads", "num_attention_heads", "n_heads", "attention_heads"),
    "kv_heads": ("kv_heads", "num_key_value_heads", "n_kv_heads", "num_kv_heads", "n_head_kv"),
    "head_dim": ("head_dim", "head_size", "head_dimension", "d_head"),
    "k_dim": ("head_dim_k", "k_head_dim", "qk_head_dim"),
    "v_dim": ("head_dim_v", "v_head_dim"),
    "k_width": ("n_embd_k_gqa",),
    "v_width": ("n_embd_v_gqa",),
    "full": (
        *("full_attention_layers", "full_layers", "full_attn_layers", "attention_layers", "attn_layers"),
        *("global_layers", "full_layers_with_own_kv", "kv_layers", "num_attention_layers"),
    ),
    "sliding": ("sliding_layers", "swa_layers", "sliding_window_layers", "local_layers", "sliding_attention_layers"),
    "recurrent": (
        *("gdn_layers", "mamba_layers", "mamba2_layers", "linear_layers", "linear_attention_layers"),
        *("ssm_layers", "kda_layers", "recurrent_layers", "deltanet_layers", "gated_deltanet_layers"),
    ),
    "window": ("sliding_window", "window", "sliding_window_size", "swa_window", "window_size"),
    "full_kv_heads": ("full_kv_heads", "global_kv_heads", "kv_heads_full", "num_global_key_value_heads"),
    "full_head_dim": ("full_head_dim", "global_head_dim", "head_dim_full"),
    "sliding_kv_heads": (
        *("sliding_kv_heads", "swa_kv_heads", "local_kv_heads", "kv_heads_sliding"),
        "swa_num_key_value_heads",
    ),
    "sliding_head_dim": ("sliding_head_dim", "swa_head_dim", "local_head_dim", "head_dim_sliding"),
    "sliding_v_dim": ("sliding_v_head_dim", "swa_v_head_dim"),
    "latent": ("kv_lora_rank",),
    "rope": ("qk_rope_head_dim", "rope_head_dim"),
    "indexer": ("index_head_dim", "indexer_head_dim"),
    "draft": ("mtp_layers", "num_nextn_predict_layers", "nextn_layers"),
    "v_heads": ("linear_num_value_heads", "gdn_v_heads", "v_heads"),
    "k_heads": ("linear_num_key_heads", "gdn_k_heads", "k_heads"),
    "dk": ("linear_key_head_dim", "gdn_head_dim_k"),
    "dv": ("linear_value_head_dim", "gdn_head_dim_v"),
    "conv": ("linear_conv_kernel_dim", "conv_kernel", "mamba_d_conv", "conv_kernel_size"),
    "m_heads": ("mamba_num_heads", "mamba_n_heads"),
    "m_dim": ("mamba_head_dim", "mamba_d_head"),
    "m_state": ("ssm_state_size", "mamba_d_state", "state_size"),
    "m_groups": ("n_groups", "mamba_n_groups"),
}
_LISTED = {
    **{"full_attention": "full", "attention": "full", "full": "full", "0": "full"},
    **{"sliding_attention": "sliding", "sliding": "sliding", "1": "sliding"},
    **{"linear_attention": "recurrent", "mamba": "recurrent"},
}
"""What an entry of ``layer_types`` stands for, or of ``hybrid_layer_pattern`` as MiMo V2 has it (1: slides)."""
_BYTES = {"float32": 4, "fp32": 4, "float": 4, "bfloat16": 2, "bf16": 2, "float16": 2, "fp16": 2, "half": 2}
INDEXER_DIM = 128
"""Key width of the indexer of DeepSeek-V3.2 and GLM-5 (``index_head_dim`` in their config.json)."""


@dataclass(frozen=True, slots=True)
class Described:
    """A geometry and where its figures are from."""

    geometry: Geometry
    source: str


def describe(config: Mapping[str, object] | None, model_name: str = "") -> Described:
    """The geometry of an inline description, of a public model by name, or of both together.

    Raises ModelError ``model-geometry-unknown`` with what is missing.
    """
    stated = dict(config or {})
    if "model_type" in text_config(stated):
        return Described(hf_geometry(stated), "of its config.json")
    known = known_model(model_name)
    if _short(stated).keys() - {"window"} and known is not None and _agrees(stated, known[0]):
        facts, source = {**known[0], **stated}, f"as stated, with {known[1]}"
    elif _short(stated):
        facts, source = stated, "as stated"
    elif known is not None:
        facts, source = dict(known[0]), known[1]
    else:
        raise _unknown("neither a geometry nor a public model's name is given")
    return Described(_geometry(facts, model_name), source)


@cache
def _table() -> tuple[tuple[re.Pattern[str], Mapping[str, object], str], ...]:
    text = files("archonctl.model").joinpath("known_models.toml").read_text("utf-8")
    rows = cast(list[Mapping[str, object]], tomllib.loads(text)["model"])
    return tuple(
        (
            re.compile(rf"(?<![a-z0-9.])(?:{row['match']})(?![0-9.])"),
            cast(Mapping[str, object], row["facts"]),
            str(row["source"]),
        )
        for row in rows
    )


def known_model(name: str) -> tuple[Mapping[str, object], str] | None:
    """Facts and source of a public model; of two rows that match, the one that matches more of the name."""
    plain = re.sub(r"[_:/\s]+", "-", name.lower())
    best: tuple[int, Mapping[str, object], str] | None = None
    for pattern, facts, source in _table():
        for match in pattern.finditer(plain):
            length = match.end() - match.start()
            if best is None or length > best[0]:
                best = (length, facts, source)
    return None if best is None else best[1:]


def _short(facts: Mapping[str, object]) -> dict[str, int]:
    """Figures under one name each; anything that is no positive whole number is left out."""
    found: dict[str, int] = {}
    for name, aliases in _ALIASES.items():
        for alias in aliases:
            value = facts.get(alias)
            if isinstance(value, str) and value.strip().isdigit():
                value = int(value)
            if isinstance(value, float) and value.is_integer():
                value = int(value)
            if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**31:
                found.setdefault(name, value)
    return found


def _agrees(stated: Mapping[str, object], known: Mapping[str, object]) -> bool:
    mine, theirs = _short(stated), _short(known)
    if "latent" in theirs and "latent" not in mine and mine.keys() & {"kv_heads", "head_dim", "k_dim", "k_width"}:
        return False  # the same model with its latent written out as heads, as engines without MLA keep it
    return all(theirs[name] == value for name, value in mine.items() if name in theirs)


def _unknown(message: str) -> ModelError:
    return ModelError("model-geometry-unknown", message, hint="give layers, kv_heads and head_dim, or config.json")


def _geometry(facts: Mapping[str, object], name: str) -> Geometry:
    short = _counted(facts, _short(facts))
    said = str(facts.get("attention", "")).lower()
    pattern = str(facts.get("pattern", "")).upper()
    full, sliding, recurrent = _counts(short, pattern)
    total = short.get("layers", full + sliding + recurrent)
    if total > MAX_LAYERS:
        raise _unknown(f"{total} layers are more than any model has")
    if "latent" in short or "mla" in said:
        one = _latent(short)
        indexer = short.get("indexer", INDEXER_DIM if "dsa" in said or "indexer" in said else 0)
    else:
        one, indexer = _full(short), 0
    layers = _arranged(total, full, sliding, recurrent, one, short)
    dtype = facts.get("dtype") or facts.get("torch_dtype")
    return Geometry(
        architecture="stated",
        name=name,
        layers=layers,
        hidden=0,
        heads=short.get("heads", 0),
        vocab=0,
        trained_context=0,
        recurrent=_state(short, facts) if recurrent else None,
        element_bytes=_BYTES.get(str(dtype).lower().removeprefix("torch."), 0),
        indexer_dim=indexer,
    )


def _counted(facts: Mapping[str, object], short: dict[str, int]) -> dict[str, int]:
    """With the layers of each kind as a list names them, where they are not stated as numbers."""
    listed = facts.get("layer_types", facts.get("hybrid_layer_pattern"))
    if not isinstance(listed, list) or {"full", "sliding", "recurrent"} & short.keys():
        return short
    kinds = [_LISTED.get(str(each), "") for each in listed[: MAX_LAYERS + 1]]
    if "" in kinds or short.get("layers", len(kinds)) != len(kinds):
        return short
    counts = {kind: kinds.count(kind) for kind in ("full", "sliding", "recurrent")}
    return {"layers": len(kinds), **short, **{kind: count for kind, count in counts.items() if count}}


def _counts(short: Mapping[str, int], pattern: str) -> tuple[int, int, int]:
    """Layers with full, sliding and recurrent attention."""
    total = short.get("layers", 0)
    if set(pattern) <= set("LGSF") and pattern and total:
        full = sum(pattern[i % len(pattern)] in "GF" for i in range(total))
        return full, total - full, 0
    sliding, recurrent = short.get("sliding", 0), short.get("recurrent", 0)
    if "full" not in short:
        if not total:
            raise _unknown("the number of layers is not given")
        if short.get("window") and not sliding:
            raise _unknown(f"a window of {short['window']} is given, but not which layers slide")
        return total - sliding - recurrent, sliding, recurrent
    full = short["full"]
    if not sliding and not recurrent and total > full:
        return (full, total - full, 0) if short.get("window") else (full, 0, total - full)
    return full, sliding, recurrent


def _latent(short: Mapping[str, int]) -> Layer:
    if "latent" not in short or "rope" not in short:
        raise _unknown("MLA without kv_lora_rank and qk_rope_head_dim")
    width = short["latent"] + short["rope"]
    return Layer(0, "mla", 1, width, short["latent"], width, 0)


def _full(short: Mapping[str, int]) -> Layer:
    if "k_width" in short and "kv_heads" not in short:
        widths = short["k_width"], short.get("v_width", short["k_width"])
        return Layer(0, "full", 1, *widths, *widths)
    heads = short.get("full_kv_heads") or short.get("kv_heads") or short.get("heads")
    k_dim = short.get("full_head_dim") or short.get("k_dim") or short.get("head_dim")
    if not heads or not k_dim:
        raise _unknown("kv_heads and head_dim are not both given")
    v_dim = short.get("full_head_dim") or short.get("v_dim") or short.get("head_dim") or k_dim
    return Layer(0, "full", heads, k_dim, v_dim, heads * k_dim, heads * v_dim)


def _arranged(
    total: int, full: int, sliding: int, recurrent: int, one: Layer, short: Mapping[str, int]
) -> tuple[Layer, ...]:
    """Kinds spread evenly over the depth, as all public hybrids have them (it matters for pipeline stages alone)."""
    if full + sliding + recurrent > total or total <= 0:
        raise _unknown(f"{full} + {sliding} + {recurrent} layers are more than {total}")
    if full + sliding == 0:
        raise _unknown("no layer with attention")
    kinds: list[AttentionKind] = []
    counts: dict[AttentionKind, int] = {"full": full, "sliding": sliding, "recurrent": recurrent}
    counts["none"] = total - full - sliding - recurrent
    due = dict.fromkeys(counts, 0.0)
    for _ in range(total):
        for kind, count in counts.items():
            due[kind] += count / total
        pick = max(due, key=lambda kind: due[kind])
        due[pick] -= 1
        kinds.append(pick)
    heads = short.get("sliding_kv_heads") or short.get("kv_heads") or one.kv_heads
    dim = short.get("sliding_head_dim") or short.get("head_dim") or one.head_dim_k
    window = short.get("window", 0)
    v_dim = short.get("sliding_v_dim") or (dim if "sliding_head_dim" in short else short.get("v_dim", dim))
    slide = Layer(0, "sliding", heads, dim, v_dim, heads * dim, heads * v_dim, window)
    made: dict[AttentionKind, Layer] = {"full": one, "sliding": slide}
    return tuple(made.get(kind) or Layer(i, kind) for i, kind in enumerate(kinds))


def _state(short: Mapping[str, int], facts: Mapping[str, object]) -> Recurrent | None:
    """The recurrent state where its dimensions are stated, else None."""
    ssm = _BYTES.get(str(facts.get("ssm_dtype") or facts.get("mamba_ssm_dtype") or "").lower(), 0)
    conv = short.get("conv", 4)
    if {"v_heads", "k_heads", "dk", "dv"} <= short.keys():
        inner, k_heads, dk = short["v_heads"] * short["dv"], short["k_heads"], short["dk"]
        width = inner + 2 * k_heads * dk
        return Recurrent(
            (conv - 1) * width, inner * dk, conv, dk, inner, k_heads, short["v_heads"], "gated_delta_net", ssm
        )
    if {"m_heads", "m_dim", "m_state"} <= short.keys():
        inner, state, groups = short["m_heads"] * short["m_dim"], short["m_state"], short.get("m_groups", 1)
        width = inner + 2 * groups * state
        return Recurrent((conv - 1) * width, inner * state, conv, state, inner, groups, short["m_heads"], "mamba2", ssm)
    return None
