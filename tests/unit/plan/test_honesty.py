"""Unknown is unknown on every engine; every demand has a source and ends; every plan says what it leaves out."""

from __future__ import annotations

from typing import Any

import pytest

from archonctl.deployment.schema import Contract, Endpoint, Engine, ModelRef
from archonctl.host.profile import Card, Host
from archonctl.model.geometry import Geometry, Layer, ModelFacts, TensorBytes
from archonctl.plan.as_json import plan_json
from archonctl.plan.build import build_plan

KINDS = {"vllm": "0.32.0", "sglang": "0.5.3", "llamacpp": "b11434"}
KNOBS: dict[str, dict[str, Any]] = {"sglang": {"mem-fraction-static": 0.8}}
HOST = Host(ram_mib=900_000, cards=(Card(index=0, name="c", total_mib=81_559),))
WEIGHTS = (TensorBytes("dense_ffn", "BF16", 16 << 30, 1),)


def endpoint(kind: str) -> Endpoint:
    engine = {"kind": kind, "version": KINDS[kind], "binary": "/x", "knobs": KNOBS.get(kind, {})}
    return Endpoint(
        contract=Contract(seqs=2, len=8192, kv_dtype="f16"),
        engine=Engine.model_validate(engine),
        model=ModelRef(path="/m"),
    )


@pytest.mark.parametrize("kind", KINDS)
def test_an_architecture_without_a_law_is_unknown_and_never_guessed(kind: str) -> None:
    why = "no law covers the architecture 'novel'"
    model = ModelFacts("/m", "safetensors", None, 16 << 30, WEIGHTS, 1, {}, geometry_reason=why)
    plan = build_plan("e", endpoint(kind), HOST, model)
    assert plan.verdict == "unknown"
    assert plan.forecast.kv_tokens is None
    assert any(why in item for item in plan.forecast.not_modelled)
    assert not any(term.name == "kv_tokens" for term in plan.forecast.terms)


@pytest.mark.parametrize("kind", KINDS)
def test_every_demand_has_a_source_and_ends_around_its_bytes(kind: str) -> None:
    layers = tuple(Layer(i, "full", 8, 128, 128, 1024, 1024) for i in range(32))
    geometry = Geometry("llama", "l", layers, 4096, 32, 32_000, 131_072)
    model = ModelFacts("/m", "gguf", geometry, 16 << 30, WEIGHTS, 1, {"llama.feed_forward_length": 14_336})
    value = plan_json(build_plan("e", endpoint(kind), HOST, model))
    assert value["demands"]
    for demand in value["demands"]:
        assert demand["source"]
        assert demand["low_bytes"] <= demand["bytes"] <= demand["high_bytes"]
    assert value["capacity"]["kv_tokens_low"] <= value["capacity"]["kv_tokens"] <= value["capacity"]["kv_tokens_high"]
    assert value["not_modelled"]
