"""The KV law of llama.cpp on geometries written down here."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archonctl.engines.llamacpp.kv import ROW_BLOCKS, KvSettings, allocate, context_shape, pad, row_bytes
from archonctl.engines.llamacpp.refusals import refusals
from archonctl.memory.interval import GIB, MIB
from archonctl.model.geometry import Geometry, Layer, Recurrent


def full(count: int, kv_heads: int, head: int, start: int = 0) -> tuple[Layer, ...]:
    width = kv_heads * head
    return tuple(Layer(start + i, "full", kv_heads, head, head, width, width) for i in range(count))


def mixed(count: int, kv_heads: int, head: int, window: int, every: int) -> tuple[Layer, ...]:
    """Every ``every``-th layer is full, the others slide."""
    return tuple(
        layer if (layer.index + 1) % every == 0 else replace(layer, attention="sliding", window=window)
        for layer in full(count, kv_heads, head)
    )


def model(name: str, layers: tuple[Layer, ...], trained: int = 131_072, **more: object) -> Geometry:
    return replace(Geometry(name, name, layers, 4096, 32, 128_256, trained), **more)


LLAMA_8B = model("llama", full(32, 8, 128))
QWEN3_32B = model("qwen3", full(64, 8, 128))
GEMMA3_27B = model("gemma3", mixed(62, 16, 128, 1024, 6))
GPT_OSS_20B = model("gpt-oss", mixed(24, 8, 64, 128, 2))
DEEPSEEK_V3 = model("deepseek2", tuple(Layer(i, "mla", 1, 576, 512, 576, 0) for i in range(61)))
QWEN3_NEXT = model(
    "qwen3next",
    tuple(Layer(i, "full", 2, 256, 256, 512, 512) if i % 4 == 3 else Layer(i, "recurrent") for i in range(48)),
    recurrent=Recurrent(3 * (4096 + 2 * 16 * 128), 128 * 4096, 4, 128, 4096, 16, 32),
)
GEOMETRIES = (LLAMA_8B, QWEN3_32B, GEMMA3_27B, GPT_OSS_20B, DEEPSEEK_V3, QWEN3_NEXT)


@pytest.mark.parametrize(
    ("geometry", "f16", "q8_0", "long"),
    [
        (LLAMA_8B, 4096, 2176, 16_384),
        (QWEN3_32B, 8192, 4352, 32_768),
        (GEMMA3_27B, 3184, 1691, 10_864),
        (GPT_OSS_20B, 786, 417, 3090),
        (DEEPSEEK_V3, 2196, 1166, 8784),
    ],
    ids=lambda value: getattr(value, "architecture", value),
)
def test_real_models_cost_what_llama_fit_params_b11434_says(geometry: Geometry, f16: int, q8_0: int, long: int) -> None:
    short = KvSettings(32_768, 1)
    assert allocate(geometry, short).bytes // MIB == f16
    assert allocate(geometry, replace(short, type_k="q8_0", type_v="q8_0")).bytes // MIB == q8_0
    assert allocate(geometry, KvSettings(131_072, 1)).bytes // MIB == long


def test_gemma_3_27b_at_8k_takes_1_23_gib() -> None:
    assert allocate(GEMMA3_27B, KvSettings(8192, 1)).bytes / GIB == pytest.approx(1.23, abs=0.005)


def test_a_context_is_rounded_up_to_256_cells_a_sequence() -> None:
    assert context_shape(KvSettings(10_000, 3), 131_072).n_ctx == 10_752
    assert context_shape(KvSettings(32_768, 3), 131_072).n_ctx_seq == 11_008
    assert context_shape(KvSettings(1, 4), 131_072).n_ctx == 1024
    assert context_shape(KvSettings(10_000, 3, kv_unified=True), 131_072).n_ctx == 10_240


def test_context_zero_is_the_trained_one_for_every_sequence_that_has_its_own() -> None:
    assert context_shape(KvSettings(0, 2), 8192).n_ctx == 16_384
    assert context_shape(KvSettings(0, 2, kv_unified=True), 8192).n_ctx == 8192
    assert context_shape(KvSettings(0, 2, fit=False), 8192).n_ctx == 8192


def test_a_slot_is_capped_though_the_cells_are_allocated() -> None:
    shape = context_shape(KvSettings(524_288, 1), 262_144)
    assert (shape.n_ctx, shape.n_ctx_slot) == (524_288, 262_144)
    assert context_shape(KvSettings(524_288, 1, stretched_context=524_288), 262_144).n_ctx_slot == 524_288
    assert context_shape(KvSettings(8192, 2, slot_cap=1000), 262_144).n_ctx_slot == 1000


@pytest.mark.parametrize(
    ("settings", "cells"),
    [
        (KvSettings(32_768, 1), 1536),
        (KvSettings(32_768, 2), 1536),
        (KvSettings(32_768, 2, kv_unified=True), 2560),
        (KvSettings(32_768, 4, kv_unified=True), 4608),
        (KvSettings(32_768, 1, n_ubatch=2048), 3072),
        (KvSettings(32_768, 1, n_ubatch=2048, n_batch=512), 1536),
        (KvSettings(1024, 2), 512),
        (KvSettings(32_768, 2, swa_full=True), 16_384),
    ],
    ids=str,
)
def test_sliding_layers_keep_their_window_and_a_batch(settings: KvSettings, cells: int) -> None:
    base, sliding = allocate(GEMMA3_27B, settings).caches
    assert (sliding.cells, sliding.layers, base.layers) == (cells, 52, 10)


def test_latent_attention_keeps_no_v_and_takes_no_other_dtype_for_it() -> None:
    assert allocate(DEEPSEEK_V3, KvSettings(8192, 1)).caches[0].v_bytes == 0
    assert [p.code for p in refusals(DEEPSEEK_V3, KvSettings(8192, 1, type_k="q8_0"))] == ["llamacpp-mla-kv-dtype"]


def test_a_hybrid_keeps_rows_in_some_layers_and_one_state_a_sequence_in_the_others() -> None:
    kv = allocate(QWEN3_NEXT, KvSettings(32_768, 3))
    assert kv.caches[0].layers == 12
    assert kv.recurrent is not None
    assert (kv.recurrent.cells, kv.recurrent.layers) == (3, 48)
    assert kv.recurrent.bytes == 3 * 36 * 4 * (3 * 8192 + 128 * 4096)
    assert kv.bytes == kv.kv_bytes + kv.recurrent.bytes


def test_layers_for_multi_token_prediction_keep_no_cells() -> None:
    geometry = model("qwen3moe", full(9, 4, 128), nextn_layers=1)
    assert allocate(geometry, KvSettings(4096, 1)).caches[0].layers == 8


def test_without_flash_attention_every_v_row_is_as_wide_as_the_widest() -> None:
    layers = (*full(1, 2, 64), *full(1, 8, 64, start=1))
    geometry = model("openelm", layers)
    on, off = (allocate(geometry, KvSettings(256, 1, flash_attn=fa)).caches[0] for fa in (True, False))
    assert on.v_bytes == 256 * 2 * (128 + 512)
    assert off.v_bytes == 256 * 2 * (512 + 512)
    assert on.k_bytes == off.k_bytes


def test_a_quantised_row_is_counted_in_blocks() -> None:
    assert row_bytes(1024, "q8_0") == 1088
    assert row_bytes(1024, "q4_0") == row_bytes(1024, "iq4_nl") == 576
    assert {name: row_bytes(32, name) for name in ("q4_1", "q5_0", "q5_1", "f32", "bf16")} == {
        "q4_1": 20,
        "q5_0": 22,
        "q5_1": 24,
        "f32": 128,
        "bf16": 64,
    }


@pytest.mark.parametrize(
    ("geometry", "settings", "code"),
    [
        (LLAMA_8B, KvSettings(4096, 257), "llamacpp-too-many-slots"),
        (LLAMA_8B, KvSettings(2**31, 1), "llamacpp-context-too-large"),
        (LLAMA_8B, KvSettings(4096, 1, type_v="q8_0", flash_attn=False), "llamacpp-quantised-v"),
        (model("phi2", full(2, 32, 80)), KvSettings(4096, 1, type_k="q8_0"), "llamacpp-kv-dtype-block"),
        (model("phi2", full(2, 32, 80)), KvSettings(4096, 1, type_v="q4_0"), "llamacpp-kv-dtype-block"),
        (model("odd", full(2, 1, 80)), KvSettings(4096, 1, type_k="q8_0", flash_attn=False), "llamacpp-kv-dtype-block"),
    ],
)
def test_what_would_end_in_exit_1_is_named(geometry: Geometry, settings: KvSettings, code: str) -> None:
    assert code in [problem.code for problem in refusals(geometry, settings)]


def test_nothing_is_refused_without_need() -> None:
    assert refusals(model("phi2", full(2, 32, 80)), KvSettings(4096, 1, type_k="q8_0", flash_attn=False)) == ()
    for geometry in GEOMETRIES:
        assert refusals(geometry, KvSettings(4096, 256)) == ()
        assert refusals(geometry, KvSettings(4096, 1, type_k="q8_0", type_v="q8_0")) == ()


def test_an_unknown_trained_context_cannot_stand_for_a_size() -> None:
    with pytest.raises(ValueError, match="no trained context"):
        allocate(replace(LLAMA_8B, trained_context=0), KvSettings(0, 1))


dtypes = st.sampled_from(sorted(ROW_BLOCKS))
any_settings = st.builds(
    KvSettings,
    n_ctx=st.integers(1, 2_000_000),
    n_seq_max=st.integers(1, 256),
    kv_unified=st.booleans(),
    type_k=dtypes,
    type_v=dtypes,
    n_batch=st.integers(1, 8192),
    n_ubatch=st.integers(0, 4096),
    swa_full=st.booleans(),
    flash_attn=st.booleans(),
)


@given(geometry=st.sampled_from(GEOMETRIES), settings=any_settings)
def test_no_fewer_cells_than_asked_and_never_more_than_one_step_a_sequence(
    geometry: Geometry, settings: KvSettings
) -> None:
    kv = allocate(geometry, settings)
    shape = kv.shape
    assert settings.n_ctx <= shape.n_ctx < settings.n_ctx + 256 * (shape.streams + 1)
    assert shape.n_ctx == shape.n_ctx_seq * shape.streams == kv.caches[0].tokens == kv.tokens
    assert shape.n_ctx_seq % 256 == 0
    assert shape.n_ctx_slot <= min(shape.n_ctx_seq, geometry.trained_context)
    assert all(cache.cells % 256 == 0 and cache.cells <= shape.n_ctx_seq for cache in kv.caches)
    assert kv.bytes > 0


@given(geometry=st.sampled_from(GEOMETRIES), settings=any_settings)
def test_more_context_never_costs_less(geometry: Geometry, settings: KvSettings) -> None:
    larger = replace(settings, n_ctx=settings.n_ctx + 256 * settings.n_seq_max)
    assert allocate(geometry, larger).bytes >= allocate(geometry, settings).bytes


@given(geometry=st.sampled_from(GEOMETRIES), settings=any_settings)
def test_a_full_size_sliding_cache_never_costs_less(geometry: Geometry, settings: KvSettings) -> None:
    whole, windowed = (allocate(geometry, replace(settings, swa_full=full_size)) for full_size in (True, False))
    assert whole.bytes >= windowed.bytes


@given(value=st.integers(0, 2**40))
def test_padding_is_the_next_multiple(value: int) -> None:
    assert pad(value) % 256 == 0
    assert value <= pad(value) < value + 256
