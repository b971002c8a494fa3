"""A model in one quant, as an engine's law takes it.

The laws of vLLM and SGLang want bytes by class, which the catalogue has. llama.cpp places tensors one by one, so a
model that was not read from a file gets one tensor a class and layer here: all layers alike, as they are but for the
first few of some mixtures.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from archonctl.catalogue.values import CatalogueModel, Quant
from archonctl.model.geometry import Geometry, Layer, ModelFacts, TensorBytes, TensorClass
from archonctl.model.gguf_laws import laws

GGUF_NAMES: Mapping[str, str] = {
    "apertus": "apertus",
    "bailing_moe": "bailingmoe",
    "cohere2": "cohere2",
    "deepseek_v2": "deepseek2",
    "deepseek_v3": "deepseek2",
    "ernie4_5_moe": "ernie4_5-moe",
    "gemma3_text": "gemma3",
    "gemma3n_text": "gemma3n",
    "gemma4_text": "gemma4",
    "glm4_moe": "glm4moe",
    "gpt_oss": "gpt-oss",
    "granitemoe": "granitemoe",
    "granitemoehybrid": "granitehybrid",
    "hunyuan_v1_dense": "hunyuan-dense",
    "hunyuan_v1_moe": "hunyuan-moe",
    "kimi_k2": "deepseek2",
    "llama4_text": "llama4",
    "minimax_m2": "minimax-m2",
    "ministral3": "mistral3",
    "mistral": "llama",
    "mistral3_text": "mistral3",
    "mixtral": "llama",
    "olmo3": "olmo2",
    "qwen2_5_vl_text": "qwen2vl",
    "qwen2_moe": "qwen2moe",
    "qwen2_vl_text": "qwen2vl",
    "qwen3_5_moe_text": "qwen35moe",
    "qwen3_5_text": "qwen35",
    "qwen3_moe": "qwen3moe",
    "qwen3_next": "qwen3next",
    "qwen3_vl_moe_text": "qwen3vlmoe",
    "qwen3_vl_text": "qwen3vl",
}
"""``model_type`` of a config to ``general.architecture`` of its GGUF (llama.cpp b11434 gguf-py constants)."""

Metadata = dict[str, int | float | str | bool]
_PARTS: Mapping[str, str] = {"dense_ffn": "ffn_up", "routed_experts": "ffn_up_exps", "shared_experts": "ffn_up_shexp"}


def facts_of(model: CatalogueModel, quant: Quant, engine: str) -> ModelFacts:
    """The facts for one engine; ``geometry`` is None, with the reason, where the engine has no law for the model."""
    facts = model.facts(quant)
    if facts.geometry is None or facts.tensor_sizes or facts.metadata:
        return facts
    if engine != "llamacpp":
        return replace(facts, metadata=_config_widths(model, facts.geometry))
    name = GGUF_NAMES.get(facts.geometry.architecture, facts.geometry.architecture)
    if name == "nemotron_h" and facts.geometry.experts:
        name = "nemotron_h_moe"
    if name not in laws():
        reason = f"llama.cpp's cache has no law here for the architecture {name}"
        return replace(facts, geometry=None, geometry_reason=reason, format="gguf")
    layers = tuple(_layer(layer) for layer in facts.geometry.layers)
    geometry = replace(facts.geometry, architecture=name, layers=layers)
    sizes = tuple(_tensors(facts.tensor_bytes, _serving(geometry)))
    widths = _header_widths(model, geometry)
    return replace(facts, geometry=geometry, format="gguf", tensor_sizes=sizes, metadata=widths, tensors=len(sizes))


def _serving(geometry: Geometry) -> int:
    return len(geometry.layers) - geometry.nextn_layers or len(geometry.layers)


def _layer(layer: Layer) -> Layer:
    """llama.cpp keeps chunks as a window (LLAMA_SWA_TYPE_CHUNKED)."""
    return replace(layer, attention="sliding") if layer.attention == "chunked" else layer


def _tensors(parts: tuple[TensorBytes, ...], layers: int) -> Iterator[tuple[str, int]]:
    """Name and bytes; together exactly the bytes of all classes."""
    sums: dict[str, int] = {}
    for part in parts:
        cls: str = part.cls if part.cls in ("embedding", "output", *_PARTS) else "attention"
        sums[cls] = sums.get(cls, 0) + part.bytes
    for cls, name in (("embedding", "token_embd.weight"), ("output", "output.weight")):
        if size := sums.pop(cls, 0):
            yield name, size
    for cls, size in sums.items():
        each, rest = divmod(size, layers)
        for number in range(layers):
            yield f"blk.{number}.{_PARTS.get(cls, 'attn_q')}.weight", each + (rest if number == layers - 1 else 0)


def _width(model: CatalogueModel, geometry: Geometry, cls: TensorClass, times: int = 1) -> int:
    """Width of a feed-forward part, from its parameters: gate, up and down are three matrices a layer."""
    parameters = model.parameters.get(cls, 0)
    return round(parameters / (3 * geometry.hidden * _serving(geometry) * max(1, times)))


def _header_widths(model: CatalogueModel, geometry: Geometry) -> Metadata:
    """As the keys of a GGUF header."""
    at = geometry.architecture
    found: Metadata = {
        f"{at}.feed_forward_length": _width(model, geometry, "dense_ffn"),
        f"{at}.expert_feed_forward_length": _width(model, geometry, "routed_experts", geometry.experts),
        f"{at}.expert_shared_feed_forward_length": _width(model, geometry, "shared_experts"),
    }
    if latent := next((layer for layer in geometry.layers if layer.attention == "mla"), None):
        found[f"{at}.attention.key_length_mla"] = latent.head_dim_k
    return {key: value for key, value in found.items() if value}


def _config_widths(model: CatalogueModel, geometry: Geometry) -> Metadata:
    """As the keys of a config.json."""
    found: Metadata = {
        "intermediate_size": _width(model, geometry, "dense_ffn"),
        "moe_intermediate_size": _width(model, geometry, "routed_experts", geometry.experts),
    }
    return {key: value for key, value in found.items() if value}
