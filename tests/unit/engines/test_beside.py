"""What lies beside weights and cache: figures with a source each, checked against what public boots print."""

from __future__ import annotations

import re
import tomllib
from importlib.resources import files
from typing import Any

import pytest

from archonctl.engines.beside import (
    Lora,
    Shape,
    Widths,
    activation_bytes,
    beside_demands,
    context_bytes,
    lora_bytes,
    unknown_parts,
)
from archonctl.host.profile import Card
from archonctl.memory.interval import GIB, MIB, Interval
from archonctl.model.geometry import Geometry, Layer, ModelFacts

TABLE: dict[str, Any] = tomllib.loads(files("archonctl.engines").joinpath("beside.toml").read_text("utf-8"))
NVIDIA = Card(index=3, name="c", total_mib=80_000, maker="nvidia")
SHAPE = Shape("vllm", tp=2, ranks=2, tokens=8192, seqs=256)


def llama(**config: int) -> ModelFacts:
    layers = tuple(Layer(i, "full", 8, 128, 128, 1024, 1024) for i in range(32))
    geometry = Geometry("llama", "l", layers, 4096, 32, 128_256, 131_072)
    return ModelFacts("/m", "safetensors", geometry, 1, (), 0, {"intermediate_size": 14_336, **config})


@pytest.mark.parametrize("row", [row for name in ("context", "collective", "graphs", "growth") for row in TABLE[name]])
def test_every_row_has_ends_in_order_and_a_public_source(row: dict[str, Any]) -> None:
    assert 0 < row["low_mib"] <= row["best_mib"] <= row["high_mib"]
    assert "https://" in row["source"]


@pytest.mark.parametrize("point", TABLE["activation"]["point"], ids=lambda point: point["name"])
def test_the_peak_of_activations_is_what_public_boots_print(point: dict[str, Any]) -> None:
    widths = Widths(point["hidden"], point["ff"], 0, 0)
    shape = Shape("vllm", point["tp"], point["tp"], point["tokens"], point["seqs"])
    law, seen = activation_bytes(widths, point["vocab"], shape), Interval.rounded(point["observed_gib"], GIB)
    assert law.low < seen.low
    assert seen.high < law.high
    assert law.best == pytest.approx(seen.best, rel=0.16)
    assert point["source"].startswith("https://github.com/")


def test_a_mixture_is_as_wide_as_the_experts_of_a_token() -> None:
    mixture = Widths(hidden=2048, ff=6144, expert_ff=768, experts_used=8)
    assert mixture.row(1) == 3 * 2048 + 8 * (2048 + 768)
    assert mixture.row(2) == 3 * 2048 + 8 * (2048 + 384)
    assert Widths(2048, 30_000, 768, 8).row(1) == 3 * 2048 + 3 * 30_000


def test_each_part_is_a_demand_of_its_card_with_method_and_ends() -> None:
    parts = list(beside_demands(NVIDIA, SHAPE, llama()))
    assert [part.cls for part in parts] == ["activation", *["scratchpad"] * 4]
    for part in parts:
        assert part.card == 3
        assert part.source == "assumed"
        assert (part.low_bytes or 0) < part.bytes < (part.high_bytes or 0)
        assert re.search(r" \([\d,]+ to [\d,]+ MiB\)$", part.detail)
    alone = Shape("vllm", 1, 1, 8192, 256, graphs=False)
    assert [part.detail.partition(" (")[0] for part in beside_demands(NVIDIA, alone, llama())] == [
        "activations, 8,192 batched tokens",
        "driver context and kernels",
        "what libraries take while the first batch runs",
    ]


def test_what_has_no_figure_is_named_and_never_counted_as_nothing() -> None:
    intel = Card(index=0, name="c", total_mib=24_000, maker="intel")
    bare = llama()
    assert bare.metadata is not None
    bare.metadata.clear()
    assert list(beside_demands(intel, Shape("sglang", 2, 2, 1, 1, graphs=False), bare)) == []
    told = " ".join(unknown_parts((intel,), Shape("vllm", 2, 2, 1, 1, lora=Lora(1, 8)), bare))
    assert all(word in told for word in ("activations", "cards of intel", "collectives", "LoRA"))
    assert context_bytes("ggml", intel) is None


def test_lora_slots_are_the_stacked_matrices_of_every_linear_layer() -> None:
    one = 3 * 4096 + 4096 + 2 * 1024 + 4096 + 4096 + 2 * 4096 + 2 * 14_336 + 14_336 + 4096
    assert lora_bytes(llama(), Lora(4, 16), 1) == 32 * one * 16 * 4 * 2
    shared = lora_bytes(llama(), Lora(4, 16), 2)
    assert shared is not None
    assert 32 * one * 16 * 4 < shared < 32 * one * 16 * 4 * 2
    slots = list(beside_demands(NVIDIA, Shape("vllm", 1, 1, 1, 1, lora=Lora(4, 16)), llama()))
    assert [part.bytes for part in slots if part.cls == "weights"] == [32 * one * 16 * 4 * 2]
    latent = ModelFacts("/m", "safetensors", Geometry("d", "d", (Layer(0, "mla", 1, 576, 512, 576, 0),), 8, 1, 9, 9), 1)
    assert lora_bytes(latent, Lora(1, 8), 1) is None


def test_the_driver_of_llama_cpp_takes_what_its_own_breakdown_leaves_unexplained() -> None:
    seen = context_bytes("ggml", NVIDIA)
    assert seen is not None
    assert seen.contains(451 * MIB)
    assert seen.contains(456 * MIB)
