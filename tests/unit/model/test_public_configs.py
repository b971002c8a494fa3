"""The geometry of public models from the keys of their config.json that decide it, model by model."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest

from archonctl.model.geometry import Geometry
from archonctl.model.hf_config import hf_geometry

Config = dict[str, Any]


def text(
    kind: str, layers: int, heads: int, kv: int, dim: int | None, hidden: int, context: int, **more: Any
) -> Config:
    """The keys that all have."""
    config = {
        "model_type": kind,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv,
        "hidden_size": hidden,
        "max_position_embeddings": context,
    }
    return config | ({"head_dim": dim} if dim else {}) | more


def inner(kind: str, config: Config) -> Config:
    """A multimodal config around it."""
    return {"model_type": kind, "text_config": config}


DELTA = {
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_num_key_heads": 16,
}
LATENT = {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128}
ROUTED = {"n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8}


@dataclass(frozen=True)
class Expected:
    """``full``, ``sliding``: KV heads, head dim; ``experts``: all, used, shared; ``state``: convolution, recurrent."""

    kinds: dict[str, int]
    context: int
    full: tuple[int, int] | None = None
    sliding: tuple[int, int, int] | None = None
    experts: tuple[int, int, int] = (0, 0, 0)
    state: tuple[int, int] | None = None
    latent: tuple[int, int] = (0, 0)
    indexer: int = 0
    more: dict[str, Any] = field(default_factory=dict)


CASES: dict[str, tuple[Config, Expected]] = {
    "Qwen/Qwen3-235B-A22B": (
        text("qwen3_moe", 94, 64, 4, 128, 4096, 40_960, num_experts=128, num_experts_per_tok=8, sliding_window=None),
        Expected({"full": 94}, 40_960, (4, 128), experts=(128, 8, 0)),
    ),
    "Qwen/Qwen3-30B-A3B": (
        text("qwen3_moe", 48, 32, 4, 128, 2048, 40_960, num_experts=128, num_experts_per_tok=8),
        Expected({"full": 48}, 40_960, (4, 128), experts=(128, 8, 0)),
    ),
    "Qwen/Qwen3-Next-80B-A3B-Instruct": (
        text(
            "qwen3_next", 48, 16, 2, 256, 2048, 262_144, full_attention_interval=4, linear_num_value_heads=32, **DELTA,
            num_experts=512, num_experts_per_tok=10, shared_expert_intermediate_size=512,
        ),
        Expected(
            {"recurrent": 36, "full": 12}, 262_144, (2, 256), experts=(512, 10, 1), state=(3 * 8192, 32 * 128 * 128)
        ),
    ),
    "Qwen/Qwen3.5-35B-A3B": (
        inner(
            "qwen3_5_moe",
            text(
                "qwen3_5_moe_text", 40, 16, 2, 256, 2048, 262_144, linear_num_value_heads=32, **DELTA,
                layer_types=(["linear_attention"] * 3 + ["full_attention"]) * 10, mamba_ssm_dtype="float32",
                num_experts=256, num_experts_per_tok=8, shared_expert_intermediate_size=512,
            ),
        ),
        Expected(
            {"recurrent": 30, "full": 10}, 262_144, (2, 256), experts=(256, 8, 1), state=(3 * 8192, 32 * 128 * 128)
        ),
    ),
    "meta-llama/Llama-4-Scout-17B-16E": (
        inner(
            "llama4",
            text(
                "llama4_text", 48, 40, 8, 128, 5120, 10_485_760, attention_chunk_size=8192, no_rope_layers=[],
                num_local_experts=16, num_experts_per_tok=1,
            ),
        ),
        Expected({"chunked": 36, "full": 12}, 10_485_760, (8, 128), experts=(16, 1, 1)),
    ),
    "meta-llama/Llama-4-Maverick-17B-128E": (
        inner(
            "llama4",
            text(
                "llama4_text", 48, 40, 8, 128, 5120, 1_048_576, attention_chunk_size=8192,
                no_rope_layers=([1, 1, 1, 0] * 12), num_local_experts=128, num_experts_per_tok=1,
            ),
        ),
        Expected({"chunked": 36, "full": 12}, 1_048_576, (8, 128), experts=(128, 1, 1)),
    ),
    "google/gemma-3-27b-it": (
        inner(
            "gemma3",
            {
                "model_type": "gemma3_text", "hidden_size": 5376, "num_hidden_layers": 62, "num_attention_heads": 32,
                "num_key_value_heads": 16, "head_dim": 128, "sliding_window": 1024,
            },
        ),
        Expected({"sliding": 52, "full": 10}, 131_072, (16, 128), (16, 128, 1024)),
    ),
    "google/gemma-3-4b-it": (
        inner(
            "gemma3",
            {"model_type": "gemma3_text", "hidden_size": 2560, "num_hidden_layers": 34, "sliding_window": 1024},
        ),
        Expected({"sliding": 29, "full": 5}, 131_072, (4, 256), (4, 256, 1024)),
    ),
    "google/gemma-3n-E4B-it": (
        inner(
            "gemma3n",
            text(
                "gemma3n_text", 35, 8, 2, 256, 2048, 32_768, sliding_window=512, num_kv_shared_layers=15,
                layer_types=(["sliding_attention"] * 4 + ["full_attention"]) * 7,
            ),
        ),
        Expected({"sliding": 16, "full": 4, "none": 15}, 32_768, (2, 256), (2, 256, 512)),
    ),
    "google/gemma-4-26B-A4B-it": (
        inner(
            "gemma4",
            text(
                "gemma4_text", 30, 16, 8, 256, 2816, 262_144, sliding_window=1024, global_head_dim=512,
                num_global_key_value_heads=2, attention_k_eq_v=True, num_kv_shared_layers=0, num_experts=128,
                top_k_experts=8, layer_types=(["sliding_attention"] * 5 + ["full_attention"]) * 5,
            ),
        ),
        Expected({"sliding": 25, "full": 5}, 262_144, (2, 512), (8, 256, 1024), (128, 8, 0)),
    ),
    "deepseek-ai/DeepSeek-V3": (
        text("deepseek_v3", 61, 128, 128, None, 7168, 163_840, **LATENT, **ROUTED, num_nextn_predict_layers=1),
        Expected({"mla": 61}, 163_840, experts=(256, 8, 1), latent=(512, 64)),
    ),
    "deepseek-ai/DeepSeek-V3.2-Exp": (
        text("deepseek_v32", 61, 128, 128, None, 7168, 163_840, **LATENT, **ROUTED, index_head_dim=128),
        Expected({"mla": 61}, 163_840, experts=(256, 8, 1), latent=(512, 64), indexer=128),
    ),
    "zai-org/GLM-4.5": (
        text("glm4_moe", 92, 96, 8, 128, 5120, 131_072, **ROUTED | {"n_routed_experts": 160}),
        Expected({"full": 92}, 131_072, (8, 128), experts=(160, 8, 1)),
    ),
    "zai-org/GLM-4.5-Air": (
        text("glm4_moe", 46, 96, 8, 128, 4096, 131_072, **ROUTED | {"n_routed_experts": 128}),
        Expected({"full": 46}, 131_072, (8, 128), experts=(128, 8, 1)),
    ),
    "moonshotai/Kimi-K2-Instruct": (
        text(
            "kimi_k2", 61, 64, 64, None, 7168, 131_072, **LATENT, n_routed_experts=384, n_shared_experts=1,
            num_experts_per_tok=8,
        ),
        Expected({"mla": 61}, 131_072, experts=(384, 8, 1), latent=(512, 64)),
    ),
    "moonshotai/Kimi-Linear-48B-A3B-Instruct": (
        {
            "model_type": "kimi_linear", "num_hidden_layers": 27, "num_attention_heads": 32, "num_key_value_heads": 32,
            "hidden_size": 2304, "head_dim": 72, "model_max_length": 1_048_576, **LATENT, "num_experts": 256,
            "num_experts_per_token": 8, "num_shared_experts": 1,
            "linear_attn_config": {
                "full_attn_layers": [4, 8, 12, 16, 20, 24, 27], "num_heads": 32, "head_dim": 128,
                "short_conv_kernel_size": 4,
            },
        },
        Expected(
            {"recurrent": 20, "mla": 7}, 1_048_576, experts=(256, 8, 1), latent=(512, 64),
            state=(3 * 3 * 4096, 32 * 128 * 128),
        ),
    ),
    "MiniMaxAI/MiniMax-M1-80k": (
        text(
            "minimax_m1", 80, 64, 8, 128, 6144, 10_240_000, attn_type_list=([0] * 7 + [1]) * 10, num_local_experts=32,
            num_experts_per_tok=2, shared_intermediate_size=0,
        ),
        Expected({"recurrent": 70, "full": 10}, 10_240_000, (8, 128), experts=(32, 2, 0), state=(0, 64 * 128 * 128)),
    ),
    "MiniMaxAI/MiniMax-M2": (
        text(
            "minimax_m2", 62, 48, 8, 128, 3072, 196_608, attn_type_list=[1] * 62, num_local_experts=256,
            num_experts_per_tok=8, shared_intermediate_size=0,
        ),
        Expected({"full": 62}, 196_608, (8, 128), experts=(256, 8, 0)),
    ),
    "openai/gpt-oss-120b": (
        text(
            "gpt_oss", 36, 64, 8, 64, 2880, 131_072, sliding_window=128, num_local_experts=128, num_experts_per_tok=4,
            layer_types=["sliding_attention", "full_attention"] * 18,
        ),
        Expected({"sliding": 18, "full": 18}, 131_072, (8, 64), (8, 64, 128), (128, 4, 0)),
    ),
    "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": (
        text(
            "nemotron_h", 52, 32, 2, 128, 2688, 262_144,
            hybrid_override_pattern="MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME", mamba_num_heads=64,
            mamba_head_dim=64, ssm_state_size=128, n_groups=8, conv_kernel=4,
            **ROUTED | {"n_routed_experts": 128, "num_experts_per_tok": 6},
        ),
        Expected(
            {"recurrent": 23, "none": 23, "full": 6}, 262_144, (2, 128), experts=(128, 6, 1),
            state=(3 * (4096 + 2 * 8 * 128), 4096 * 128),
        ),
    ),
    "nvidia/Nemotron-H-8B-Base-8K": (
        text(
            "nemotron_h", 52, 32, 8, None, 4096, 8192, attention_head_dim=128,
            hybrid_override_pattern="M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-", mamba_num_heads=128,
            mamba_head_dim=64, ssm_state_size=128, n_groups=8, conv_kernel=4,
        ),
        Expected(
            {"recurrent": 24, "none": 24, "full": 4}, 8192, (8, 128), state=(3 * (8192 + 2 * 8 * 128), 8192 * 128)
        ),
    ),
    "ai21labs/AI21-Jamba-1.5-Mini": (
        text(
            "jamba", 32, 32, 8, None, 4096, 262_144, attn_layer_period=8, attn_layer_offset=4, mamba_d_state=16,
            mamba_d_conv=4, mamba_expand=2, num_experts=16, num_experts_per_tok=2,
        ),
        Expected(
            {"recurrent": 28, "full": 4}, 262_144, (8, 128), experts=(16, 2, 0), state=(3 * 8192, 8192 * 16)
        ),
    ),
    "mistralai/Mistral-Small-3.2-24B-Instruct-2506": (
        inner("mistral3", text("mistral", 40, 32, 8, 128, 5120, 131_072, sliding_window=None)),
        Expected({"full": 40}, 131_072, (8, 128)),
    ),
    "mistralai/Ministral-3-8B-Instruct-2512": (
        inner("mistral3", text("ministral3", 34, 32, 8, 128, 4096, 262_144, sliding_window=None)),
        Expected({"full": 34}, 262_144, (8, 128)),
    ),
    "mistralai/Mistral-7B-v0.1": (
        text("mistral", 32, 32, 8, None, 4096, 32_768, sliding_window=4096),
        Expected({"sliding": 32}, 32_768, sliding=(8, 128, 4096)),
    ),
    "microsoft/phi-4": (
        text("phi3", 40, 40, 10, None, 5120, 16_384, sliding_window=None),
        Expected({"full": 40}, 16_384, (10, 128)),
    ),
    "microsoft/Phi-4-mini-instruct": (
        text("phi3", 32, 24, 8, None, 3072, 131_072, sliding_window=262_144),
        Expected({"full": 32}, 131_072, (8, 128)),
    ),
    "ibm-granite/granite-4.0-h-small": (
        text(
            "granitemoehybrid", 40, 32, 8, None, 4096, 131_072, mamba_n_heads=128, mamba_d_head=64, mamba_d_state=128,
            mamba_n_groups=1, mamba_d_conv=4, mamba_expand=2, num_local_experts=72, num_experts_per_tok=10,
            shared_intermediate_size=1536,
            layer_types=["attention" if i in (5, 15, 25, 35) else "mamba" for i in range(40)],
        ),
        Expected(
            {"recurrent": 36, "full": 4}, 131_072, (8, 128), experts=(72, 10, 1),
            state=(3 * (8192 + 2 * 128), 8192 * 128),
        ),
    ),
    "tencent/Hunyuan-A13B-Instruct": (
        text(
            "hunyuan_v1_moe", 32, 32, 8, 128, 4096, 32_768, num_experts=64, moe_topk=[8] * 32,
            num_shared_expert=[1] * 32,
        ),
        Expected({"full": 32}, 32_768, (8, 128), experts=(64, 8, 1)),
    ),
    "baidu/ERNIE-4.5-21B-A3B-PT": (
        text(
            "ernie4_5_moe", 28, 20, 4, 128, 2560, 131_072, moe_num_experts=64, moe_k=6, moe_num_shared_experts=2
        ),
        Expected({"full": 28}, 131_072, (4, 128), experts=(64, 6, 2)),
    ),
}  # fmt: skip


def rows(geometry: Geometry, kind: str) -> set[tuple[int, int, int]]:
    return {(la.kv_heads, la.head_dim_k, la.window) for la in geometry.layers if la.attention == kind}


@pytest.mark.parametrize("name", CASES)
def test_the_geometry_of_a_public_model(name: str) -> None:
    config, expected = CASES[name]
    found = hf_geometry(config)
    assert dict(Counter(layer.attention for layer in found.layers)) == expected.kinds
    assert found.trained_context == expected.context
    assert rows(found, "full") == ({(*expected.full, 0)} if expected.full else set())
    assert rows(found, "sliding") == ({expected.sliding} if expected.sliding else set())
    assert (found.experts, found.experts_used, found.experts_shared) == expected.experts
    state = found.recurrent
    assert (None if state is None else (state.conv_elements, state.ssm_elements)) == expected.state
    assert (found.latent_dim, found.rope_dim) == expected.latent
    assert found.indexer_dim == expected.indexer


def test_every_family_that_is_promised_is_among_them() -> None:
    assert len({config.get("text_config", config)["model_type"] for config, _ in CASES.values()}) >= 20


def test_a_nemotron_whose_layers_are_listed_needs_no_count() -> None:
    config, expected = CASES["nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"]
    words = {"M": "mamba", "E": "moe", "*": "attention"}
    listed = {
        **{key: value for key, value in config.items() if key not in ("hybrid_override_pattern", "num_hidden_layers")},
        "layers_block_type": [words[letter] for letter in config["hybrid_override_pattern"]],
    }
    assert dict(Counter(layer.attention for layer in hf_geometry(listed).layers)) == expected.kinds
