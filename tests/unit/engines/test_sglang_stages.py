"""Pipeline stages, weights in RAM and adapters under SGLang."""

from __future__ import annotations

from typing import Any

import pytest

from archonctl.deployment.schema import Contract, Endpoint, Engine, ModelRef
from archonctl.engines.sglang.settings import settings_of
from archonctl.engines.sglang.stages import stage_layers, stages_of
from archonctl.errors import DeclarationError
from archonctl.host.profile import Card, Host
from archonctl.memory.interval import GIB
from archonctl.model.geometry import AttentionKind, Geometry, Layer, ModelFacts, TensorBytes
from archonctl.plan.judge import judged_plan


def model(*kinds: AttentionKind, experts: int = 0) -> ModelFacts:
    layers = tuple(Layer(i, kind, 8, 128, 128, 1024, 1024) for i, kind in enumerate(kinds))
    geometry = Geometry("llama", "l", layers, 4096, 32, 128_000, 131_072, experts=experts)
    parts = (
        TensorBytes("dense_ffn", "BF16", 14 * GIB, 1),
        TensorBytes("embedding", "BF16", GIB, 1),
        TensorBytes("output", "BF16", GIB, 1),
    )
    return ModelFacts("/m", "safetensors", geometry, 16 * GIB, parts, 0, {"intermediate_size": 14_336})


DENSE = model(*["full"] * 30)


def endpoint(env: dict[str, str] | None = None, **knobs: Any) -> Endpoint:
    knobs = {"mem-fraction-static": 0.85, **knobs}
    engine = {"kind": "sglang", "version": "0.5.9", "binary": "/x", "knobs": knobs, "env": env or {}}
    contract = Contract(seqs=2, len=8192, kv_dtype="f16")
    return Endpoint(contract=contract, engine=Engine.model_validate(engine), model=ModelRef(path="/m"))


def on(total_mib: int, cards: int = 1) -> Host:
    each = (Card(index=i, name="c", total_mib=total_mib, maker="nvidia") for i in range(cards))
    return Host(ram_mib=64_000, available_mib=60_000, cards=tuple(each))


def tokens(declared: Endpoint, host: Host, facts: ModelFacts = DENSE) -> float:
    seen = judged_plan("e", declared, host, facts).forecast.kv_tokens
    return seen.best if seen else -1


def test_the_last_stages_take_what_does_not_divide() -> None:
    assert stage_layers(30, 4) == (7, 7, 8, 8)
    assert stage_layers(30, 4, (9, 7, 7, 7)) == (9, 7, 7, 7)
    for wrong in ((30,), (10, 10, 10, 1)):
        with pytest.raises(DeclarationError, match="partition"):
            stage_layers(30, 4, wrong)
    with pytest.raises(DeclarationError, match="31 pipeline stages"):
        stage_layers(30, 31)


def test_stages_share_the_layers_and_hold_the_ends_once() -> None:
    found = stages_of(DENSE, settings_of(endpoint(pp=2)))
    sizes = [stage.weights.best / GIB for stage in found if stage.weights]
    assert sizes == [8, 8]
    assert [len(stage.model.geometry.layers) for stage in found if stage.model and stage.model.geometry] == [15, 15]


def test_two_stages_hold_more_than_twice_what_one_card_does() -> None:
    one, two = tokens(endpoint(), on(24_000)), tokens(endpoint(**{"pp-size": 2}), on(24_000, 2))
    assert two > 3 * one > 0
    assert judged_plan("e", endpoint(), on(18_000), DENSE).verdict != "holds"
    assert judged_plan("e", endpoint(pp=2), on(18_000, 2), DENSE).verdict == "holds"
    assert judged_plan("e", endpoint(pp=2), on(24_000, 1), DENSE).verdict == "unknown"


def test_the_stage_with_the_fewest_tokens_decides() -> None:
    def parted(layers: str) -> float:
        return tokens(endpoint({"SGLANG_PP_LAYER_PARTITION": layers}, pp=2), on(24_000, 2))

    assert parted("15,15") > parted("20,10") == parted("10,20") > 0
    with pytest.raises(DeclarationError, match="layers a stage"):
        parted("fifteen")


def test_windows_count_on_the_stage_that_has_them() -> None:
    mixed = model(*["sliding"] * 15, *["full"] * 15)
    alone = tokens(endpoint(pp=2, **{"swa-full-tokens-ratio": 0.1}), on(24_000, 2), mixed)
    assert alone <= tokens(endpoint(pp=2), on(24_000, 2), DENSE)


def test_weights_that_stay_in_ram_make_room_on_the_card() -> None:
    plain, less = tokens(endpoint(), on(24_000)), tokens(endpoint(**{"cpu-offload-gb": 7}), on(24_000))
    row = 30 * 2 * 8 * 128 * 2
    assert less - plain == pytest.approx(7 * GIB / row, abs=2)
    demands = judged_plan("e", endpoint(**{"cpu-offload-gb": 7}), on(24_000), DENSE).forecast.demands
    assert [(d.scope, d.bytes) for d in demands if d.cls == "offload"] == [("host", 7 * GIB)]


def test_adapters_take_their_room_or_leave_the_pool_unknown() -> None:
    lora = {"enable-lora": True, "max-lora-rank": 64}
    assert 0 < tokens(endpoint(**lora), on(24_000)) < tokens(endpoint(), on(24_000))
    plan = judged_plan("e", endpoint(**lora), on(24_000), model(*["full"] * 30, experts=8))
    assert (plan.verdict, "LoRA slots" in plan.forecast.method) == ("unknown", True)


def test_a_stage_of_states_alone_bounds_no_tokens_and_a_model_of_them_has_no_law() -> None:
    mixed = model(*["recurrent"] * 15, *["full"] * 15)
    assert tokens(endpoint(pp=2), on(24_000, 2), mixed) > 0
    plan = judged_plan("e", endpoint(), on(24_000), model(*["recurrent"] * 30), detail=True)
    assert plan.verdict == "unknown"
    assert "no layer keeps keys and values" in plan.forecast.method
