"""Every engine's working: the numbers put into each formula come to the value beside it, and the last is the plan's."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from archonctl.deployment.schema import Boot, Contract, Endpoint, Engine, ModelRef
from archonctl.engines import adapter
from archonctl.engines.base import Forecast
from archonctl.engines.terms import Working, numbers_in
from archonctl.host.profile import Card, Host
from archonctl.model.geometry import ModelFacts, TensorBytes
from archonctl.model.inline import describe
from support.working import check, comes_to

sys.path.insert(0, str(Path(__file__).parents[1] / "engines"))
import radiance_cases as radiance

MODELS = ("llama-3.1-8b", "qwen3-32b", "deepseek-v3", "gemma-3-27b", "gpt-oss-20b", "qwen3-next-80b")
VERSIONS = {"vllm": "0.32.0", "sglang": "0.5.3", "llamacpp": "b11434"}


def facts(name: str) -> ModelFacts:
    geometry = describe(None, name).geometry
    assert geometry is not None
    hidden, vocab = geometry.hidden or 4096, geometry.vocab or 151_936
    geometry = replace(geometry, trained_context=geometry.trained_context or 131_072, hidden=hidden, vocab=vocab)
    parts = (TensorBytes("dense_ffn", "BF16", 16 << 30, 1),)
    return ModelFacts("/m", "safetensors", geometry, 1, parts, 1, {"intermediate_size": 14_336})


def forecast(kind: str, model: str, knobs: dict[str, Any], total_mib: int = 81_920, **contract: Any) -> Forecast:
    endpoint = Endpoint(
        contract=Contract.model_validate({"seqs": 3, "len": 5000, "kv_dtype": "f16", **contract}),
        engine=Engine.model_validate({"kind": kind, "version": VERSIONS[kind], "binary": "/x", "knobs": knobs}),
        model=ModelRef(path="/m"),
    )
    host = Host(ram_mib=900_000, cards=tuple(Card(index=i, name=f"c{i}", total_mib=total_mib) for i in range(8)))
    return adapter(kind).forecast(endpoint, host, facts(model))


def agrees(seen: Forecast) -> None:
    terms = check(seen.terms)
    assert seen.kv_tokens is not None
    assert terms["kv_tokens"].value == pytest.approx(seen.kv_tokens.best, rel=1e-12)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    "knobs",
    [
        {},
        {"ctx-size": 10_001, "kv-unified": True},
        {"ctx-size": 0},
        {"ctx-size": 0, "fit": "off", "np": 2},
        {"np": -1, "ub": 64, "swa-full": True},
        {"kv-unified": True, "kv-unified-per-slot": 4000, "fa": "off"},
        {"rope-scaling": "yarn", "rope-scale": 4},
    ],
    ids=str,
)
@pytest.mark.parametrize("dtype", ["f16", "q8_0", "q8_0/f32"])
def test_llama_server(model: str, knobs: dict[str, Any], dtype: str) -> None:
    seen = forecast("llamacpp", model, knobs, kv_dtype=dtype, margin=0.01)
    agrees(seen)
    terms = {term.name: term.value for term in seen.terms}
    assert terms["kv_bytes"] == sum(demand.bytes for demand in seen.demands if demand.cls == "kv_cache")
    assert terms["slot_tokens"] == seen.seq_len_limit


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    "knobs",
    [
        {"kv-cache-memory-bytes": 12_345_678_901},
        {"num-gpu-blocks-override": 5000},
        {"gpu-memory-utilization": 0.8},
        {"tensor-parallel-size": 2, "pipeline-parallel-size": 2, "kv-cache-memory-bytes": 8 << 30},
        {"dcp": 2, "tp": 2, "kv-cache-memory-bytes": 8 << 30, "max-num-batched-tokens": 4096},
    ],
    ids=str,
)
def test_vllm(model: str, knobs: dict[str, Any]) -> None:
    seen = forecast("vllm", model, knobs)
    terms = check(seen.terms)
    if seen.kv_tokens is not None:
        agrees(seen)
        assert min(terms["whole"].value, 3) == seen.seqs_limit
    else:
        assert "request_blocks" in terms


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    "knobs",
    [
        {"mem-fraction-static": 0.8},
        {"mem-fraction-static": 0.5, "tp": 4, "page-size": 64, "max-total-tokens": 9000},
        {"mem-fraction-static": 0.8, "speculative-algorithm": "EAGLE", "max-mamba-cache-size": 20},
        {"mem-fraction-static": 0.9, "swa-full-tokens-ratio": 0.001},
    ],
    ids=str,
)
def test_sglang(model: str, knobs: dict[str, Any]) -> None:
    agrees(forecast("sglang", model, knobs))


@pytest.mark.parametrize("ratio", [0.8, 0.0001], ids=str)
def test_sglang_with_a_pool_for_windows(ratio: float) -> None:
    own = facts("gpt-oss-20b")
    assert own.geometry is not None
    model = replace(own, geometry=replace(own.geometry, architecture="gpt_oss"))
    knobs: dict[str, Any] = {
        "mem-fraction-static": 0.8,
        "swa-full-tokens-ratio": ratio,
        "speculative-algorithm": "EAGLE3",
    }
    endpoint = Endpoint(
        contract=Contract(seqs=3, len=5000, kv_dtype="f16"),
        engine=Engine.model_validate({"kind": "sglang", "version": "0.5.9", "binary": "/x", "knobs": knobs}),
        model=ModelRef(path="/m"),
    )
    host = Host(ram_mib=900_000, cards=(Card(index=0, name="c", total_mib=81_920),))
    seen = adapter("sglang").forecast(endpoint, host, model)
    agrees(seen)
    assert {"full_slots", "sliding_slots"} <= {term.name for term in seen.terms}


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["archon", "archon-pair"]),
    st.integers(1, 6),
    st.integers(1000, 300_000),
    st.integers(43_000, 47_000),
    st.sampled_from([96, 200, 0]),
)
def test_radiance(name: str, seqs: int, length: int, pool: int, headroom: int) -> None:
    knobs: dict[str, object] = {"vram-kv-mib": pool - 40_000} if name == "archon-pair" else {"host-pool-mib": pool}
    if name == "archon":
        knobs["gpu-headroom-mib"] = headroom
    seen = radiance.forecast(radiance.declared(name, knobs=knobs, contract={"seqs": seqs, "len": length}))
    terms = check(seen.terms)
    assert terms["ttm_floor"].value == seen.host_need.ttm_floor_mib
    if seen.kv_tokens is not None:
        agrees(seen)
        assert {"wanted", "pool_needed", "fixed"} <= terms.keys()


def test_a_boot_of_sglang_is_a_figure_that_was_taken() -> None:
    boot = Boot(engine_version="0.5.3", kv_tokens=40_000, seqs=3, len=5000, kv_dtype="f16", source="a boot")
    endpoint = Endpoint(
        contract=Contract(seqs=3, len=5000, kv_dtype="f16"),
        engine=Engine(kind="sglang", version="0.5.3", binary="/x"),
        model=ModelRef(path="/m"),
        boot=(boot,),
    )
    seen = adapter("sglang").forecast(endpoint, Host(), facts("qwen3-32b"))
    assert [(term.name, term.source) for term in seen.terms] == [("seen", "log"), ("kv_tokens", "computed")]


def test_what_is_unknown_has_no_working_that_claims_tokens() -> None:
    for kind, version in VERSIONS.items():
        knobs = {"ctx-size": 0} if kind == "llamacpp" else {}
        endpoint = Endpoint(
            contract=Contract(seqs=3, len=5000, kv_dtype="f16"),
            engine=Engine.model_validate({"kind": kind, "version": version, "binary": "/x", "knobs": knobs}),
            model=ModelRef(path="/m"),
        )
        assert "kv_tokens" not in {term.name for term in adapter(kind).forecast(endpoint, Host(), None).terms}


def test_a_name_stands_for_one_quantity() -> None:
    work = Working()
    work.take("a", 1, "", "one", "config", "here")
    with pytest.raises(ValueError, match="there already"):
        work.take("a", 2, "", "another", "config", "there")


def test_the_numbers_that_are_put_in_come_to_the_value_as_they_are_printed() -> None:
    seen = forecast("vllm", "qwen3-32b", {"tensor-parallel-size": 2})
    values = {term.name: term.value for term in seen.terms}
    shown = numbers_in(seen.terms)
    assert {"row", "activation", "memory", "blocks", "kv_tokens"} <= shown.keys()
    for name, text in shown.items():
        assert "e+" not in text
        assert comes_to(text, {}) == pytest.approx(values[name], rel=1e-9), name
