"""Levers: the smallest change of each kind, tried forward before it is proposed."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from radiance_cases import boot, declared, forecast, host, verdict

from archonctl.engines.change import changed

SHORT = {"host-pool-mib": 44_928}


def test_the_host_pool_lever_is_640_mib_and_the_pool_that_shipped() -> None:
    lever = forecast(declared(knobs=SHORT)).levers[0]
    assert dict(lever.set) == {"engine.knobs.host-pool-mib": 45_568}
    assert "+640 MiB" in lever.text
    assert "44,928 -> 45,568" in lever.text
    assert "44,000 to 89,621" in lever.text
    assert lever.wins_tokens == 44_000
    assert "148,920 to 150,200 MiB" in lever.text
    assert "about 2.5 % of the slab" in lever.costs


@pytest.mark.parametrize(
    ("name", "knobs", "contract"),
    [
        ("archon", SHORT, {}),
        ("archon", SHORT, {"margin": 0.1}),
        ("archon", {}, {"seqs": 4}),
        ("archon", {}, {"len": 262_144}),
        ("archon-pair", {}, {"seqs": 4}),
        ("archon-pair", {}, {"kv_dtype": "bf16"}),
        ("archon-pair", {"vram-kv-mib": 3543, "vram-weights-mib": 26_071}, {}),
        ("archon-pair", {"max-num-seqs": 2}, {}),
        ("archon-pair", {"vram-weights-mib": 26_000}, {}),
        ("archon-pair", {"vram-weights-mib": 26_000}, {"seqs": 4}),
        ("archon-pair", {"vram_kv_mib": 4000}, {}),
    ],
)
def test_every_lever_makes_the_contract_hold(name: str, knobs: dict[str, object], contract: dict[str, object]) -> None:
    without = ("vram-kv-mib",) if "vram_kv_mib" in knobs else ()
    endpoint = declared(name, knobs=knobs, without=without, contract=contract)
    found = forecast(endpoint)
    assert verdict(endpoint, found) == "short"
    assert found.levers
    for lever in found.levers:
        after = changed(endpoint, lever.set)
        assert verdict(after, forecast(after)) == "holds", lever


def test_one_step_less_would_not_hold() -> None:
    endpoint = declared(knobs={"host-pool-mib": 45_568 - 64})
    assert verdict(endpoint, forecast(endpoint)) == "unknown"
    assert dict(forecast(endpoint).levers[0].set) == {"engine.knobs.host-pool-mib": 45_568}


def test_the_memory_lever_comes_before_a_smaller_promise() -> None:
    kinds = [next(iter(lever.set)) for lever in forecast(declared(knobs=SHORT)).levers]
    assert kinds == ["engine.knobs.host-pool-mib", "contract.seqs", "contract.len"]


def test_fp8_is_proposed_where_bf16_falls_short_and_fp8_holds() -> None:
    found = forecast(declared("archon-pair", contract={"kv_dtype": "bf16", "margin": 0.0}))
    assert any(dict(lever.set) == {"contract.kv_dtype": "fp8"} for lever in found.levers)


def test_fewer_and_shorter_are_the_largest_that_hold() -> None:
    levers = {next(iter(lever.set)): lever.set for lever in forecast(declared(knobs=SHORT)).levers}
    assert levers["contract.seqs"]["contract.seqs"] == 2
    assert levers["contract.len"]["contract.len"] == 183_000
    longer = declared(knobs=SHORT, contract={"len": 184_000})
    assert verdict(longer, forecast(longer)) == "short"


def test_the_pair_lever_stays_under_the_ceiling() -> None:
    lever = forecast(declared("archon-pair", contract={"seqs": 4})).levers[0]
    pool, slab = lever.set["engine.knobs.vram-kv-mib"], lever.set["engine.knobs.vram-weights-mib"]
    assert int(pool) + int(slab) <= 30_969
    assert int(pool) >= 6_601


def test_a_slab_over_the_ceiling_is_cut_to_what_the_pool_leaves() -> None:
    lever = forecast(declared("archon-pair", knobs={"vram-weights-mib": 26_000})).levers[0]
    assert dict(lever.set) == {"engine.knobs.vram-weights-mib": 30_969 - 5_120}
    assert "151 MiB less" in lever.text


def test_nothing_is_proposed_that_a_refused_knob_would_undo() -> None:
    assert forecast(declared(knobs={**SHORT, "vram-kv-mib": 5_120})).levers == ()


def test_no_host_pool_is_proposed_that_the_host_cannot_pin() -> None:
    for full in (host(ttm_target_mib=149_000), host(ram_mib=176_000)):
        levers = forecast(declared(knobs=SHORT), full).levers
        assert not any("engine.knobs.host-pool-mib" in lever.set for lever in levers)
        assert levers


def test_limits_of_knobs_are_raised_to_the_contract_in_the_declarations_own_spelling() -> None:
    endpoint = declared(knobs={"max_num_seqs": 2, "max-model-len": 100_000})
    lever = forecast(endpoint).levers[0]
    assert dict(lever.set) == {"engine.knobs.max_num_seqs": 3, "engine.knobs.max-model-len": 200_000}


@pytest.mark.parametrize("name", ["archon", "archon-pair"])
def test_a_contract_that_holds_needs_no_lever(name: str) -> None:
    assert forecast(declared(name)).levers == ()


def test_without_evidence_there_is_no_lever_to_try() -> None:
    assert forecast(declared(boots=[])).levers == ()


@settings(max_examples=25, deadline=None)
@given(tokens=st.integers(250_000, 605_999), margin=st.sampled_from([0.0, 0.01, 0.1]))
def test_whatever_the_boot_showed_a_proposed_lever_holds(tokens: int, margin: float) -> None:
    endpoint = declared(boots=[boot(kv_tokens=tokens, kv_gib="")], contract={"margin": margin})
    found = forecast(endpoint)
    for lever in found.levers:
        after = changed(endpoint, lever.set)
        assert verdict(after, forecast(after)) == "holds"
