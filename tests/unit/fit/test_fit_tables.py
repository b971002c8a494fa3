"""The tables of fit: a source a row, and no row that contradicts the engines' own."""

from __future__ import annotations

import tomllib
from importlib.resources import files
from typing import Any

import pytest

from archonctl.catalogue import load_catalogue
from archonctl.engines import adapter
from archonctl.fit.cards import card_host
from archonctl.fit.declare import Candidate, endpoint_of
from archonctl.fit.kernels import ENGINES, gate, kernels, knows
from archonctl.fit.kv_quants import known_quants, served, warning
from archonctl.fit.kv_served import KvServed
from archonctl.fit.need import need_of
from archonctl.fit.needs import Needs
from archonctl.fit.speed import decode_rate, flops_of, table
from archonctl.host.cards import all_cards, targets


def _toml(name: str) -> dict[str, Any]:
    return tomllib.loads(files("archonctl.fit").joinpath(name).read_text("utf-8"))


@pytest.mark.parametrize(
    ("name", "key"), [("kernels.toml", "kernel"), ("kv_quants.toml", "served"), ("speed.toml", "compute")]
)
def test_every_row_has_a_source(name: str, key: str) -> None:
    assert [row for row in _toml(name)[key] if len(row.get("source", "")) < 12] == []


def test_every_quant_of_the_catalogue_is_known_to_each_of_its_engines() -> None:
    quants = {
        (engine, quant.name) for model in load_catalogue().models for quant in model.quants for engine in quant.engines
    }
    assert {pair for pair in quants if not knows(*pair)} == set()


def test_every_target_of_a_card_can_be_asked() -> None:
    for target in targets():
        assert gate("llamacpp", "Q4_K_M", target).open


@pytest.mark.parametrize(
    ("target", "open_", "shut"),
    [
        ("7.0", {"FP16", "GPTQ"}, {"FP8", "BF16", "AWQ", "INT8"}),
        ("7.5", {"FP16", "AWQ"}, {"FP8", "BF16", "MXFP4", "NVFP4"}),
        ("8.0", {"BF16", "AWQ", "MXFP4"}, {"FP8", "NVFP4"}),
        ("8.6", {"BF16", "AWQ", "MXFP4"}, {"FP8", "NVFP4"}),
        ("8.9", {"BF16", "FP8"}, {"NVFP4"}),
        ("9.0", {"BF16", "FP8"}, {"NVFP4"}),
        ("10.0", {"FP8", "NVFP4", "MXFP4"}, {"INT8"}),
        ("gfx942", {"BF16", "FP8"}, {"NVFP4"}),
        ("gfx1100", {"BF16"}, {"FP8", "MXFP4"}),
    ],
)
def test_vllm_runs_on_a_target_what_its_hardware_has(target: str, open_: set[str], shut: set[str]) -> None:
    assert {kind for kind in open_ | shut if gate("vllm", kind, target).open} == open_


def test_the_table_of_cards_and_that_of_engines_agree_on_what_vllm_runs() -> None:
    """Both were read from vLLM's own table of hardware; a word of the one stands for a kernel of the other."""
    words = {"bf16": "BF16", "int8": "INT8", "fp8": "FP8", "nvfp4": "NVFP4", "gptq": "GPTQ", "awq": "AWQ"}
    nvidia = {name: runs for name, runs in targets().items() if name[0].isdigit() and float(name) >= 7}
    differ = {
        (name, kind)
        for name, runs in nvidia.items()
        for word, kind in words.items()
        if gate("vllm", kind, name).open is not (word in runs)
    }
    assert differ == set()
    assert gate("sglang", "AWQ", "7.5").open


def test_unpacked_weights_are_taken_only_if_asked_for() -> None:
    assert not gate("vllm", "FP8", "8.0").open
    found = gate("vllm", "FP8", "8.0", True).kernel
    assert found
    assert found.weight_only
    assert "Marlin" in found.kernel


def test_no_kernel_of_a_card_is_needed_in_ram_and_only_llamacpp_computes_there() -> None:
    assert {row.engine for row in kernels() if row.ram} == {"llamacpp"}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("asked", known_quants())
def test_what_is_served_for_a_cache_is_a_type_that_the_law_knows(engine: str, asked: str) -> None:
    kv = served(engine, asked)
    if kv is None:
        return
    one = Candidate("m", engine, 1, 4096, kv, 1, "nvidia")
    adapter(engine).forecast(endpoint_of(one), card_host("A100 80GB"), None, detail=False)
    assert knows(engine, f"kv:{kv.dtype}")
    told = warning(engine, kv)
    assert (told is None) is not kv.substituted
    if told:
        assert all(word in told.message for word in (asked, kv.dtype, engine))


@pytest.mark.parametrize(
    ("engine", "asked", "bits"),
    [
        ("vllm", "int4", 8),
        ("sglang", "int8", 8),
        ("llamacpp", "int8", 8.5),
        ("llamacpp", "int4", 4.5),
        ("vllm", "f16", 16),
    ],
)
def test_a_cache_is_sized_by_what_is_really_served(engine: str, asked: str, bits: float) -> None:
    model = load_catalogue().find("qwen3-14b")
    number = next(i for i, quant in enumerate(model.quants) if engine in quant.engines)
    kv = served(engine, asked)
    assert kv
    facts = Needs(model).facts(number, engine)
    need = need_of(Candidate(facts.path, engine, 1, 32_768, kv, 1, "nvidia"), facts)
    values = sum(layer.k_width + layer.v_width for layer in model.geometry.layers) * 32_768
    assert need.kv_bytes == pytest.approx(values * bits / 8, rel=0.002)
    assert need.kv_bytes >= values * bits / 8


def test_names_of_one_type_are_no_substitution() -> None:
    assert not KvServed("auto", "f16").substituted
    assert not KvServed("bfloat16", "bf16").substituted


@pytest.mark.parametrize("seen", _toml("speed.toml")["seen"], ids=lambda row: row["name"])
def test_the_interval_of_decoding_holds_what_was_measured(seen: dict[str, Any]) -> None:
    assert decode_rate(seen["bytes"], seen["bandwidth_bytes_s"]).contains(seen["decode_tokens_s"])


def test_more_bytes_are_never_faster_and_the_ends_are_in_order() -> None:
    rates = [decode_rate(size, 3e11) for size in (1e8, 1e9, 1e10)]
    assert [rate.best for rate in rates] == sorted((rate.best for rate in rates), reverse=True)


def test_the_cards_with_a_published_speed_are_cards_of_the_catalogue() -> None:
    assert flops_of("Tesla T4") == 65.13e12
    assert flops_of("NVIDIA H100 PCIe") == 756e12, "the longer name wins over the family"
    assert flops_of("NVIDIA L4") == 121e12 != flops_of("NVIDIA L40S")
    assert flops_of("NVIDIA A10") is None
    known = {card.name for card in all_cards()}
    assert {card.name for card in all_cards() if flops_of(card.name)} <= known
    assert table()["crawl"]["tokens_s"] > 0
