"""From a Hugging Face config.json to a geometry: by a law, or not at all."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archonctl.errors import ModelError
from archonctl.model.geometry import Geometry
from archonctl.model.hf_config import hf_geometry, hf_laws
from archonctl.model.inline import describe, known_model

LLAMA = {
    "model_type": "llama",
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "hidden_size": 4096,
    "torch_dtype": "bfloat16",
    "max_position_embeddings": 131072,
}
GEMMA3 = LLAMA | {"model_type": "gemma3_text", "num_hidden_layers": 62, "head_dim": 128, "sliding_window": 1024}
DEEPSEEK = LLAMA | {"model_type": "deepseek_v3", "num_hidden_layers": 61, "kv_lora_rank": 512, "qk_rope_head_dim": 64}
NEXT = LLAMA | {
    "model_type": "qwen3_next",
    "num_hidden_layers": 48,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "full_attention_interval": 4,
    "linear_num_value_heads": 32,
    "linear_num_key_heads": 16,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
}
NEMOTRON = LLAMA | {
    "model_type": "nemotron_h",
    "num_hidden_layers": 8,
    "hybrid_override_pattern": "M-M*-MEM",
    "head_dim": 128,
    "mamba_num_heads": 128,
    "mamba_head_dim": 64,
    "ssm_state_size": 128,
    "n_groups": 8,
    "conv_kernel": 4,
}
KIMI = DEEPSEEK | {
    "model_type": "kimi_linear",
    "num_hidden_layers": 27,
    "linear_attn_config": {
        "full_attn_layers": [4, 8, 12, 16, 20, 24, 27],
        "num_heads": 32,
        "head_dim": 128,
        "short_conv_kernel_size": 4,
    },
}
JAMBA = LLAMA | {
    "model_type": "jamba",
    "attn_layer_period": 8,
    "attn_layer_offset": 4,
    "mamba_d_state": 16,
    "mamba_d_conv": 4,
    "mamba_expand": 2,
}


def kinds(geometry: Geometry) -> dict[str, int]:
    return dict(Counter(layer.attention for layer in geometry.layers))


def test_heads_and_their_width() -> None:
    found = hf_geometry(LLAMA)
    assert kinds(found) == {"full": 32}
    assert (found.layers[0].kv_heads, found.layers[0].head_dim_k, found.element_bytes) == (8, 128, 2)


def test_every_sixth_layer_of_gemma_3_is_full() -> None:
    assert kinds(hf_geometry(GEMMA3)) == {"sliding": 52, "full": 10}


def test_listed_layer_types_win_over_a_pattern() -> None:
    listed = ["sliding_attention", "full_attention"] * 31
    assert kinds(hf_geometry(GEMMA3 | {"layer_types": listed})) == {"sliding": 31, "full": 31}


def test_letters_are_a_pattern() -> None:
    exaone = GEMMA3 | {"model_type": "exaone4", "num_hidden_layers": 64, "sliding_window_pattern": "LLLG"}
    assert kinds(hf_geometry(exaone)) == {"sliding": 48, "full": 16}


def test_llama_4_attends_within_chunks() -> None:
    scout = LLAMA | {"model_type": "llama4_text", "num_hidden_layers": 48, "attention_chunk_size": 8192}
    assert kinds(hf_geometry({"model_type": "llama4", "text_config": scout})) == {"chunked": 36, "full": 12}


def test_a_latent_row_is_one_head() -> None:
    found = hf_geometry(DEEPSEEK)
    assert kinds(found) == {"mla": 61}
    assert (found.layers[0].k_width, found.layers[0].v_width, found.indexer_dim) == (576, 0, 0)
    assert hf_geometry(DEEPSEEK | {"model_type": "deepseek_v32", "index_head_dim": 128}).indexer_dim == 128


def test_gated_delta_net_state() -> None:
    found = hf_geometry(NEXT)
    assert kinds(found) == {"recurrent": 36, "full": 12}
    assert found.recurrent is not None
    assert (found.recurrent.conv_elements, found.recurrent.ssm_elements) == (3 * 8192, 32 * 128 * 128)
    asked = hf_geometry(NEXT | {"model_type": "qwen3_5", "mamba_ssm_dtype": "float32"}).recurrent
    assert asked is not None
    assert asked.ssm_element_bytes == 4


def test_mamba_kda_and_jamba_hybrids() -> None:
    assert kinds(hf_geometry(NEMOTRON)) == {"recurrent": 4, "none": 3, "full": 1}
    assert kinds(hf_geometry(KIMI)) == {"recurrent": 20, "mla": 7}
    assert kinds(hf_geometry(JAMBA)) == {"recurrent": 28, "full": 4}
    state = hf_geometry(NEMOTRON).recurrent
    assert state is not None
    assert (state.conv_elements, state.ssm_elements, state.ssm_element_bytes) == (3 * 10240, 128 * 64 * 128, 4)


@pytest.mark.parametrize("kind", ["", "deepseek_v4", "rwkv7", "falcon_h1", "a" * 5000])
def test_an_architecture_without_a_law_is_refused(kind: str) -> None:
    with pytest.raises(ModelError, match="model-architecture-unknown"):
        hf_geometry(LLAMA | {"model_type": kind})


@pytest.mark.parametrize(
    "wrong",
    [
        {"num_hidden_layers": 0},
        {"num_hidden_layers": 10**9},
        {"num_hidden_layers": "32"},
        {"num_key_value_heads": -1},
        {"hidden_size": None, "head_dim": None},
        {"layer_types": ["full_attention"]},
        {"layer_types": ["quantum"] * 32},
    ],
)
def test_figures_that_make_no_cache_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ModelError, match="model-geometry-invalid"):
        hf_geometry(LLAMA | wrong)


def test_a_hybrid_that_does_not_say_which_layers_attend_is_refused() -> None:
    with pytest.raises(ModelError, match="model-geometry-invalid"):
        hf_geometry({key: value for key, value in NEXT.items() if key != "full_attention_interval"})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from(sorted(hf_laws())), st.dictionaries(st.sampled_from(sorted(NEXT | KIMI | JAMBA)), JSON))
def test_any_config_gives_a_geometry_or_a_reason(kind: str, noise: dict[str, object]) -> None:
    try:
        assert hf_geometry(LLAMA | noise | {"model_type": kind}).layers
    except ModelError:
        return


@given(st.dictionaries(st.text(max_size=12) | st.sampled_from(["layers", "kv_heads", "head_dim"]), JSON), st.text())
def test_any_description_gives_a_geometry_or_a_reason(config: dict[str, object], name: str) -> None:
    try:
        assert describe(config, name).geometry.layers
    except ModelError:
        return


def test_gaps_are_filled_by_the_model_s_name() -> None:
    stated = {"layers": 64, "full_attention_layers": 16, "kv_heads": 4, "head_dim": 256}
    assert describe(stated, "").geometry.recurrent is None
    assert describe(stated, "org/Qwen3.5-27B-FP8").geometry.recurrent is not None


def test_a_name_does_not_fill_what_contradicts_it() -> None:
    assert len(describe({"layers": 20, "kv_heads": 4, "head_dim": 64}, "Qwen3-32B").geometry.layers) == 20


def test_a_window_without_its_layers_is_not_guessed() -> None:
    with pytest.raises(ModelError, match="model-geometry-unknown"):
        describe({"layers": 36, "kv_heads": 8, "head_dim": 64, "sliding_window": 128}, "private")


@pytest.mark.parametrize(
    ("name", "layers"),
    [
        ("Qwen/Qwen3-8B", 36),
        ("qwen3-80b", 0),
        ("Qwen/Qwen3-30B-A3B-Instruct-2507-FP8", 48),
        ("deepseek-ai/DeepSeek-R1-Distill-Llama-70B", 80),
        ("deepseek-ai/DeepSeek-R1", 61),
        ("unsloth/Llama-3.3-70B-Instruct-bnb-4bit", 80),
        ("zai-org/GLM-4.5-Air-FP8", 46),
        ("", 0),
    ],
)
def test_public_models_by_name(name: str, layers: int) -> None:
    known = known_model(name)
    assert (known[0]["layers"] if known else 0) == layers


def test_every_public_model_has_a_geometry() -> None:
    for name in ("gpt-oss-20b", "gemma-3-27b-it", "nemotron-3-nano-30b", "deepseek-v3.2", "qwen3.5-35b-a3b"):
        assert describe(None, name).geometry.layers
