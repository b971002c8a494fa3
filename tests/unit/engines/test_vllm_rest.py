"""What vLLM's share of a card pays for beside weights, held against boots that print both sides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from archonctl.deployment.schema import Contract, Endpoint, Engine, ModelRef
from archonctl.engines.beside import Shape
from archonctl.engines.vllm.assess import assess
from archonctl.engines.vllm.rest import UNKNOWN_GIB, rest_of
from archonctl.host.profile import Card, Host
from archonctl.memory.interval import GIB, Interval
from archonctl.model.geometry import Geometry, Layer, ModelFacts, TensorBytes
from archonctl.model.inspect import inspect_model
from archonctl.plan.judge import judged_plan
from support.raw_safetensors import llama_config, llama_tensors, write_folder


def model(
    hidden: int, vocab: int, *, attention: Any = "full", experts: int = 0, weights: int = 15 * GIB, **config: int
) -> ModelFacts:
    layers = tuple(Layer(i, attention, 8, 128, 128, 1024, 1024) for i in range(32))
    geometry = Geometry(
        "llama", "l", layers, hidden, 32, vocab, 131_072, experts=experts, experts_used=4 if experts else 0
    )
    parts = (
        TensorBytes("dense_ffn", "BF16", weights - 2 * GIB, 1),
        TensorBytes("embedding", "BF16", 2 * GIB, 1),
    )
    return ModelFacts("/m", "safetensors", geometry, weights, parts, 0, dict(config))


LLAMA = model(4096, 128_256, intermediate_size=14_336)
GPT_OSS = model(2880, 201_088, experts=32, intermediate_size=2880)
BOOTS = {
    "vllm-project/vllm/issues/10517 (29,000)": (LLAMA, (0, 6, 3), 29_000, "23.58", 0.9, "14.9888", "2.89"),
    "vllm-project/vllm/issues/10517 (20,000)": (LLAMA, (0, 6, 3), 20_000, "23.58", 0.9, "14.9888", "3.81"),
    "myoceane.fr/index.php/ai-vllm-a100-gemma-4": (GPT_OSS, (0, 19, 0), 2048, "79.25", 0.65, "13.72", "36.56"),
}  # fmt: skip


@pytest.mark.parametrize("source", BOOTS)
def test_what_a_public_boot_left_for_its_cache_lies_within_the_estimate(source: str) -> None:
    facts, version, tokens, card, share, weights, seen = BOOTS[source]
    rest = rest_of("nvidia", Shape("vllm", 1, 1, tokens, 256), facts, version).share
    room = Interval.rounded(card).best * share - float(weights)
    low, best, high = (room - end / GIB for end in (rest.high, rest.best, rest.low))
    assert low < float(seen) < high
    assert best == pytest.approx(float(seen), rel=0.05)


@pytest.mark.parametrize(
    ("version", "counted"),
    [
        ((0, 9, 1), {"activation", "context", "growth", "collective"}),
        ((0, 10, 2), {"activation", "growth", "collective"}),
        ((0, 19, 1), {"activation", "growth"}),
        ((0, 21, 0), {"activation", "growth", "graphs"}),
    ],
)
def test_the_share_pays_for_what_that_version_takes_off_it(version: tuple[int, ...], counted: set[str]) -> None:
    rest = rest_of("nvidia", Shape("vllm", 2, 2, 2048, 4), LLAMA, version)
    assert {part.kind for part in rest.counted} == counted
    assert {part.kind for part in (*rest.counted, *rest.beside)} == {
        "activation", "context", "growth", "collective", "graphs",
    }  # fmt: skip
    assert rest.all.best > rest.share.best


def test_a_model_of_unknown_widths_has_the_range_of_public_boots() -> None:
    rest = rest_of("nvidia", Shape("vllm", 1, 1, 2048, 4), model(4096, 128_256), (0, 32, 0))
    assert (rest.share.low, rest.share.best, rest.share.high) == tuple(gib * GIB for gib in UNKNOWN_GIB)


def endpoint(**knobs: Any) -> Endpoint:
    engine = Engine.model_validate({"kind": "vllm", "version": "0.32.0", "binary": "/x", "knobs": knobs})
    return Endpoint(contract=Contract(seqs=2, len=8192, kv_dtype="f16"), engine=engine, model=ModelRef(path="/m"))


def on(total_mib: int, ram_mib: int = 64_000) -> Host:
    return Host(
        ram_mib=ram_mib, available_mib=ram_mib, cards=(Card(index=0, name="c", total_mib=total_mib, maker="nvidia"),)
    )


def test_the_pool_of_a_blind_plan_moves_with_the_batch_and_with_the_graphs() -> None:
    def pool(**knobs: Any) -> float:
        size = assess(endpoint(**knobs), on(81_000), LLAMA).memory.size
        assert size is not None
        return size.best

    more = pool(**{"max-num-batched-tokens": 4096}) - pool(**{"max-num-batched-tokens": 8192})
    assert more == pytest.approx(4096 * 2 * (3 * 4096 + 3 * 14_336), abs=2)
    assert pool(**{"enforce-eager": True}) > pool()


@pytest.mark.parametrize(
    "facts",
    [
        pytest.param(GPT_OSS, id="experts"),
        pytest.param(model(4096, 128_256, attention="mla", intermediate_size=14_336), id="latents"),
    ],
)
def test_adapters_that_no_law_covers_leave_the_pool_unknown(facts: ModelFacts) -> None:
    plan = judged_plan("e", endpoint(**{"enable-lora": True}), on(81_000), facts)
    assert plan.verdict == "unknown"
    assert "LoRA slots of this kind of layer" in plan.forecast.method
    assert any(line.startswith("LoRA slots") for line in plan.forecast.not_modelled)
    assert judged_plan("e", endpoint(**{"enable-lora": False}), on(81_000), facts).forecast.kv_tokens


def test_weights_that_stay_in_ram_make_room_on_the_card_and_are_asked_of_the_host() -> None:
    small = on(16_000)
    assert judged_plan("e", endpoint(), small, LLAMA).verdict == "short"
    plan = judged_plan("e", endpoint(**{"cpu-offload-gb": 6}), small, LLAMA)
    assert plan.verdict == "holds"
    assert [(d.cls, d.scope, d.bytes, d.pinned) for d in plan.forecast.demands if d.cls == "offload"] == [
        ("offload", "host", 6 * GIB, True)
    ]
    assert judged_plan("e", endpoint(**{"cpu-offload-gb": 6}), on(16_000, ram_mib=5000), LLAMA).verdict == "short"
    whole = assess(endpoint(**{"cpu-offload-gb": 900}), small, LLAMA)
    assert whole.weights is not None
    assert whole.weights.best == 2 * GIB, "embedding and output stay on the card"
    assert judged_plan("e", endpoint(**{"cpu-offload-gb": 0}), small, LLAMA).verdict == "short"


TOWER = {"vision_config.hidden_size": 1152, "vision_config.intermediate_size": 4304}


@pytest.mark.parametrize(
    ("knobs", "kinds"),
    [
        ({}, {"encoder"}),
        ({"limit-mm-per-prompt": '{"image": 2}'}, {"encoder"}),
        ({"limit-mm-per-prompt": '{"image": 0, "video": 2}'}, {"encoder"}),
        ({"limit-mm-per-prompt": '{"image": 0, "video": 0}'}, set()),
        ({"language-model-only": True}, set()),
    ],
)
def test_a_tower_for_images_is_counted_unless_none_are_taken(knobs: dict[str, Any], kinds: set[str]) -> None:
    seeing = model(4096, 128_256, intermediate_size=14_336, **TOWER)
    rest = assess(endpoint(**knobs), on(81_000), seeing).rest
    assert rest is not None
    assert {part.kind for part in rest.counted} - {"activation", "growth", "graphs"} == kinds
    nameless = model(4096, 128_256, intermediate_size=14_336, **{"vision_config.depth": 27})
    told = judged_plan("e", endpoint(**knobs), on(81_000), nameless).forecast.not_modelled
    assert any("tower" in line for line in told) == bool(kinds)


def test_a_card_with_less_free_than_the_share_is_refused_with_both_numbers() -> None:
    def said(free: int | None, version: str = "0.32.0", **knobs: Any) -> list[str]:
        card = Card(index=3, name="c", total_mib=24_000, maker="nvidia", free_mib=free)
        declared = endpoint(**knobs)
        declared = declared.model_copy(update={"engine": declared.engine.model_copy(update={"version": version})})
        plan = judged_plan("e", declared, Host(ram_mib=64_000, cards=(card,)), LLAMA)
        return [problem.message for problem in plan.forecast.problems if problem.code == "free-memory-too-little"]

    assert said(21_000) == [
        "21,000 MiB of card 3 are free, and gpu-memory-utilization 0.92 asks for 22,080 at the start"
    ]
    assert said(21_000, **{"kv-cache-memory-bytes": GIB})
    assert said(21_000, **{"gpu-memory-utilization": 0.86}) == said(22_100) == said(None) == said(21_000, "0.7.3") == []


@pytest.mark.parametrize(("said", "counted"), [("0", False), ("1", True), ("", True), ("yes", True)])
def test_the_environment_decides_whether_graphs_are_taken_off_the_share(said: str, counted: bool) -> None:
    declared = endpoint()
    engine = declared.engine.model_copy(update={"env": {"VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS": said}})
    now = assess(declared.model_copy(update={"engine": engine}), on(81_000), LLAMA)
    assert now.rest is not None
    assert ("graphs" in {part.kind for part in now.rest.counted}) == counted
    assert "graphs" in {part.kind for part in (*now.rest.counted, *now.rest.beside)}


def test_a_folder_says_that_its_model_has_a_tower(tmp_path: Path) -> None:
    vision = {"hidden_size": 1152, "intermediate_size": 4304}
    folder = write_folder(tmp_path / "m", llama_config(vision_config=vision), llama_tensors())
    rest = assess(endpoint(), on(81_000), inspect_model(folder)).rest
    assert rest is not None
    tower = next(part for part in rest.counted if part.kind == "encoder")
    assert tower.size.best == 16_384 * 4 * 2 * (3 * 1152 + 2 * 4304)
