"""SGLang declarations: forecast from a boot, from a card, or honestly unknown; and the command line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from archonctl.deployment.schema import Boot, Contract, Endpoint, Engine, KnobValue, ModelRef
from archonctl.engines import adapter
from archonctl.engines.base import Forecast
from archonctl.errors import ArchonError
from archonctl.host.profile import Card, Host
from archonctl.model.geometry import Geometry, Layer, ModelFacts, TensorBytes
from archonctl.plan.build import build_plan

ADAPTER = adapter("sglang")
GIB = 1024**3
NOWHERE = Host(source="assumed")
TOKEN_BYTES = 32 * 2 * 8 * 128 * 2
"""Llama 3 8B: keys and values of 32 layers, 8 heads of 128, 16 bits."""


def llama(weights: int = 16 * GIB) -> ModelFacts:
    layers = tuple(Layer(i, "full", 8, 128, 128, 1024, 1024, 0) for i in range(32))
    parts = (TensorBytes("dense_ffn", "BF16", weights, 1),) if weights else ()
    return ModelFacts("/m", "safetensors", Geometry("l", "l", layers, 4096, 32, 32_000, 131_072), weights, parts, 1, {})


def card(total_mib: int = 81_920, count: int = 1) -> Host:
    return Host(ram_mib=500_000, cards=tuple(Card(index=i, name=f"c{i}", total_mib=total_mib) for i in range(count)))


def endpoint(
    knobs: Mapping[str, KnobValue] | None = None,
    boot: tuple[Boot, ...] = (),
    engine: Mapping[str, Any] | None = None,
    **contract: Any,
) -> Endpoint:
    more = {"binary": "/v/bin/python", "version": "0.5.3", **(engine or {})}
    return Endpoint(
        contract=Contract.model_validate({"seqs": 4, "len": 32_768, **contract}),
        engine=Engine(kind="sglang", knobs=dict(knobs or {}), **more),
        model=ModelRef(path="/models/llama"),
        boot=boot,
    )


def forecast(declared: Endpoint, host: Host = NOWHERE, model: ModelFacts | None = None) -> Forecast:
    return ADAPTER.forecast(declared, host, model or llama())


def seen(**more: Any) -> Boot:
    said = {
        "engine_version": "0.5.3",
        "kv_tokens": 400_000,
        "seqs": 4,
        "len": 32_768,
        "kv_dtype": "f16",
        "source": "log",
    }
    return Boot.model_validate(said | more)


def test_without_a_share_and_without_a_boot_the_pool_is_unknown_and_says_why() -> None:
    found = forecast(endpoint(), card())
    assert found.kv_tokens is None
    assert "mem-fraction-static is not set" in found.method
    assert build_plan("e", endpoint(), card(), llama()).verdict == "unknown"


def test_a_card_less_the_weights_is_a_range_around_what_the_share_leaves() -> None:
    found = forecast(endpoint({"mem-fraction-static": 0.85}), card())
    assert found.kv_tokens is not None
    left = (80 - 0.6) * GIB * 0.85 - 16 * GIB
    assert found.kv_tokens.best == pytest.approx(left / TOKEN_BYTES, abs=2)
    assert found.kv_tokens.low < found.kv_tokens.best < found.kv_tokens.high
    assert build_plan("e", endpoint({"mem-fraction-static": 0.85}), card(), llama()).verdict == "holds"


def test_the_share_is_of_what_is_free_before_the_load_on_the_tightest_card() -> None:
    share = endpoint({"mem-fraction-static": 0.85, "tp-size": 2})
    pair = card(count=2)
    tight = pair.cards[1].model_copy(update={"free_mib": 40_960})
    found = forecast(share, pair.model_copy(update={"cards": (pair.cards[0], tight)}))
    assert found.kv_tokens
    left = (40 - 0.6) * GIB * 0.85 - 8 * GIB
    assert found.kv_tokens.best == pytest.approx(left / (TOKEN_BYTES / 2), abs=2)


def test_weights_that_leave_nothing_are_short() -> None:
    plan = build_plan("e", endpoint({"mem-fraction-static": 0.85}), card(16_384), llama())
    assert plan.verdict == "short"


def test_a_boot_of_the_same_shape_is_the_answer() -> None:
    found = forecast(endpoint(boot=(seen(),)))
    assert found.kv_tokens is not None
    assert (found.kv_tokens.best, found.kv_tokens.is_exact) == (400_000, True)


def test_a_boot_with_another_dtype_gives_its_bytes() -> None:
    declared = endpoint(boot=(seen(kv_gib="48.83"),), kv_dtype="fp8")
    found = forecast(declared)
    assert found.kv_tokens is not None
    assert found.kv_tokens.best == pytest.approx(48.83 * GIB / (TOKEN_BYTES / 2), rel=1e-5)
    assert any("served as --kv-cache-dtype fp8_e5m2" in note for note in found.notes)


@pytest.mark.parametrize(
    ("knobs", "boot", "why"),
    [
        ({}, {"engine_version": "0.5.2"}, "version 0.5.2"),
        ({"tp-size": 2}, {"knobs": {"tp-size": 1}}, "another tp"),
        ({"mem-fraction-static": 0.8}, {"knobs": {"mem-fraction-static": 0.9}}, "another fraction"),
    ],
)
def test_a_boot_of_another_shape_is_no_answer(knobs: dict[str, KnobValue], boot: dict[str, Any], why: str) -> None:
    found = forecast(endpoint(knobs, boot=(seen(**boot),)))
    assert found.kv_tokens is None
    assert why in found.method


def test_a_cap_under_the_contract_is_short_whatever_the_memory() -> None:
    plan = build_plan("e", endpoint({"max-total-tokens": 100_000}), NOWHERE, llama())
    assert plan.verdict == "short"
    assert "100,000" in plan.reasons[0]


def test_a_context_over_the_trained_one_is_refused_before_the_boot() -> None:
    assert build_plan("e", endpoint(len=200_000), NOWHERE, llama()).verdict == "short"


def test_layers_that_share_rows_elsewhere_have_no_law_here_and_a_boot_of_the_same_knobs_decides() -> None:
    model = llama()
    assert model.geometry
    shared = replace(model, geometry=replace(model.geometry, sharing_layers=10))
    knobs = {"mem-fraction-static": 0.9}
    blind = forecast(endpoint(knobs), card(), shared)
    assert blind.kv_tokens is None
    assert "10 layers read the rows of others" in blind.method
    boot = seen(knobs=knobs)
    assert forecast(endpoint(knobs, (boot,)), card(), shared).kv_tokens is not None
    assert forecast(endpoint(knobs, (boot,), kv_dtype="fp8"), card(), shared).kv_tokens is None


def test_the_command_line_states_what_decides_the_pool() -> None:
    line = ADAPTER.command(endpoint({"tp-size": 2, "mem-fraction-static": 0.85, "trust-remote-code": True}))
    assert line.argv == (
        "/v/bin/python", "-m", "sglang.launch_server", "--model-path", "/models/llama", "--host", "127.0.0.1",
        "--port", "8000", "--context-length", "32768", "--max-running-requests", "4", "--kv-cache-dtype", "auto",
        "--enable-metrics", "--trust-remote-code", "--mem-fraction-static", "0.85", "--tp-size", "2",
    )  # fmt: skip


def test_the_newer_command_has_a_verb() -> None:
    assert ADAPTER.command(endpoint(engine={"binary": "/v/bin/sglang"})).argv[:2] == ("/v/bin/sglang", "serve")


def test_an_image_has_its_python_called() -> None:
    image = "lmsysorg/sglang@sha256:" + "0" * 64
    words = list(ADAPTER.command(endpoint(engine={"binary": "", "image": image})).argv)
    at = words.index("--entrypoint")
    assert words[at : at + 5] == ["--entrypoint", "python3", image, "-m", "sglang.launch_server"]


@pytest.mark.parametrize(
    ("knobs", "more", "code"),
    [
        ({"port": 1}, {}, "knob-reserved"),
        ({"api-key": "x"}, {}, "knob-secret"),
        ({"no-such-flag": 1}, {}, "knob-unknown"),
        ({"mem-fraction-static": 1.5}, {}, "knob-bad-value"),
        ({"page-size": "many"}, {}, "knob-bad-value"),
        ({"kv-cache-dtype": "fp8_e4m3"}, {}, "kv-dtype-conflict"),
        ({}, {"kv_dtype": "q8_0"}, "kv-dtype-unknown"),
        ({}, {"engine": {"binary": ""}}, "engine-binary-missing"),
        ({"tp": 2, "tp-size": 2}, {}, "knob-twice"),
    ],
)
def test_what_cannot_be_rendered_is_refused(knobs: dict[str, KnobValue], more: dict[str, Any], code: str) -> None:
    with pytest.raises(ArchonError) as refused:
        ADAPTER.command(endpoint(knobs, **more))
    assert refused.value.code == code
