"""What llama-server takes besides the KV cache."""

from __future__ import annotations

from dataclasses import replace

import pytest

from archonctl.engines.llamacpp.kv import KvSettings, allocate
from archonctl.engines.llamacpp.memory import Widths, checkpoint_bytes, compute_buffer, weights
from archonctl.memory.interval import MIB
from archonctl.model.geometry import Geometry, Layer, ModelFacts, Recurrent, TensorBytes


def geometry(name: str, hidden: int, heads: int, kv_heads: int, head: int, **more: object) -> Geometry:
    width = kv_heads * head
    layers = tuple(Layer(i, "full", kv_heads, head, head, width, width) for i in range(2))
    return replace(Geometry(name, name, layers, hidden, heads, 0, 131_072), **more)


LLAMA_8B = geometry("llama", 4096, 32, 8, 128), Widths(14_336, 0, 0, 0)
LLAMA_1B = geometry("llama", 2048, 32, 8, 64), Widths(8192, 0, 0, 0)
QWEN3_32B = geometry("qwen3", 5120, 64, 8, 128), Widths(25_600, 0, 0, 0)
QWEN2_7B = geometry("qwen2", 3584, 28, 4, 128), Widths(18_944, 0, 0, 0)
QWEN3_30B = geometry("qwen3moe", 2048, 32, 4, 128, experts=128, experts_used=8), Widths(0, 768, 0, 0)
GPT_OSS = geometry("gpt-oss", 2880, 64, 8, 64, experts=32, experts_used=4), Widths(0, 2880, 0, 0)
DEEPSEEK_V3 = (
    replace(
        geometry("deepseek2", 7168, 128, 1, 576, experts=256, experts_used=8),
        layers=tuple(Layer(i, "mla", 1, 576, 512, 576, 0) for i in range(2)),
    ),
    Widths(18_432, 2048, 2048, 192),
)

MEASURED = [
    (LLAMA_8B, 128, 2048, True, 31),
    (LLAMA_8B, 512, 16_384, True, 140),
    (LLAMA_8B, 2048, 16_384, True, 560),
    (LLAMA_8B, 512, 16_384, False, 1108),
    (LLAMA_1B, 512, 2048, True, 70),
    (QWEN3_32B, 512, 16_384, True, 216),
    (QWEN3_32B, 2048, 16_384, False, 8664),
    (QWEN2_7B, 512, 16_384, True, 162),
    (QWEN3_30B, 512, 2048, True, 90),
    (QWEN3_30B, 512, 16_384, True, 92),
    (GPT_OSS, 512, 2048, True, 98),
    (DEEPSEEK_V3, 512, 16_384, True, 422),
    (DEEPSEEK_V3, 128, 16_384, False, 1133),
]
"""MiB that llama-fit-params b11434 named for these widths, with two layers (the layer count does not matter)."""


@pytest.mark.parametrize(("model", "n_ubatch", "n_ctx", "flash_attn", "mib"), MEASURED)
def test_the_compute_buffer_lies_within_the_stated_error(
    model: tuple[Geometry, Widths], n_ubatch: int, n_ctx: int, flash_attn: bool, mib: int
) -> None:
    settings = KvSettings(n_ctx, 1, n_ubatch=n_ubatch, flash_attn=flash_attn)
    bounds = compute_buffer(model[0], model[1], settings, allocate(model[0], settings))
    assert bounds.low / MIB <= mib + 1
    assert mib <= bounds.high / MIB
    assert bounds.best / MIB == pytest.approx(mib, rel=0.2, abs=3)


def test_unknown_widths_give_no_estimate() -> None:
    facts = ModelFacts("x.gguf", "gguf", LLAMA_8B[0], 1, metadata={"llama.embedding_length": 4096})
    assert Widths.of(facts, LLAMA_8B[0]) is None
    assert Widths.of(replace(facts, metadata=None), LLAMA_8B[0]) is None
    known = replace(facts, metadata={"llama.feed_forward_length": 14_336})
    assert Widths.of(known, LLAMA_8B[0]) == LLAMA_8B[1]


def test_a_checkpoint_is_the_window_of_sliding_layers() -> None:
    sliding = tuple(Layer(i, "sliding", 16, 128, 128, 2048, 2048, 1024) for i in range(52))
    gemma = replace(LLAMA_8B[0], layers=sliding)
    settings = KvSettings(8192, 1)
    assert checkpoint_bytes(gemma, settings, allocate(gemma, settings)) == 416 * MIB
    short = KvSettings(256, 1)
    assert checkpoint_bytes(gemma, short, allocate(gemma, short)) == 104 * MIB
    whole = replace(settings, swa_full=True)
    assert checkpoint_bytes(gemma, whole, allocate(gemma, whole)) == 0


def test_a_checkpoint_is_one_state_of_recurrent_layers_and_nothing_elsewhere() -> None:
    hybrid = replace(LLAMA_8B[0], layers=(Layer(0, "recurrent"),), recurrent=Recurrent(10, 90, 4, 1, 1, 1, 1))
    settings = KvSettings(8192, 3)
    assert checkpoint_bytes(hybrid, settings, allocate(hybrid, settings)) == 400
    assert checkpoint_bytes(LLAMA_8B[0], settings, allocate(LLAMA_8B[0], settings)) == 0


def test_weights_are_the_tensors_of_the_header_or_the_file() -> None:
    parts = (TensorBytes("attention", "q4_0", 300, 2), TensorBytes("other", "f32", 100, 1))
    assert (weights(ModelFacts("x", "gguf", None, 999, parts, 3)).bytes, 400) == (400, 400)
    assert weights(ModelFacts("x", "gguf", None, 999, parts, 3)).dtype == "q4_0"
    assert weights(ModelFacts("x", "gguf", None, 999)).bytes == 999
