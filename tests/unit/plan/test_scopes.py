"""Want, budget and margin of the host and of every card decide a plan, whatever the engine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from archonctl.deployment.load import load_endpoint
from archonctl.deployment.schema import Contract, Endpoint, Engine, ModelRef
from archonctl.engines.base import CardRule, Forecast
from archonctl.host.profile import Card, Host
from archonctl.memory.demand import Demand
from archonctl.memory.interval import GIB, MIB, Interval
from archonctl.model.geometry import Geometry, Layer, ModelFacts, TensorBytes
from archonctl.plan.as_json import plan_json
from archonctl.plan.build import plan_endpoint
from archonctl.plan.judge import judge, judged_plan
from archonctl.plan.scopes import judged_scopes, memory_notes

CONTRACT = Contract(seqs=1, len=100, kv_dtype="f16")


NO_HEADROOM = CardRule(headroom=0.0)


def forecast(*demands: Demand, rule: CardRule = NO_HEADROOM) -> Forecast:
    return Forecast("law", Interval.exact(1000), None, None, (), demands, card_rule=rule)


def device(mib: int, card: int | None = 0, **more: Any) -> Demand:
    return Demand("weights", "device", "", mib * MIB, card=card, **more)


def card(index: int = 0, total: int = 1000, **more: Any) -> Card:
    return Card(index=index, name=f"c{index}", total_mib=total, **more)


def verdict(seen: Forecast, host: Host) -> tuple[str, tuple[str, ...]]:
    return judge(CONTRACT, seen, judged_scopes(seen, host))


def test_a_card_that_is_asked_for_too_much_makes_the_plan_short_with_both_numbers() -> None:
    host = Host(ram_mib=9000, cards=(card(0), card(1, 700)))
    said, reasons = verdict(forecast(device(800, 0), device(800, 1)), host)
    assert said == "short"
    assert len(reasons) == 1
    assert "memory of card 1: 800 MiB wanted, 700 MiB may be used" in reasons[0]
    assert "100 MiB short" in reasons[0]


def test_free_memory_decides_where_it_is_known_and_the_total_where_it_is_not() -> None:
    asked = forecast(device(800))
    assert verdict(asked, Host(cards=(card(),)))[0] == "holds"
    said, reasons = verdict(asked, Host(cards=(card(free_mib=600),)))
    assert said == "short"
    assert "judged by free memory" in reasons[0]
    resident = forecast(device(500), device(300, resident=True))
    assert verdict(resident, Host(cards=(card(free_mib=600),)))[0] == "holds"
    assert verdict(resident, Host(cards=(card(total=700),)))[0] == "short"


def test_memory_that_nobody_knows_lets_the_plan_go_on_and_is_told() -> None:
    asked = forecast(device(800, None), Demand("offload", "host", "", 5 * MIB))
    fits = judged_scopes(asked, Host())
    assert judge(CONTRACT, asked, fits) == ("holds", ())
    assert [fit.verdict for fit in fits] == ["unknown", "unknown"]
    told = list(memory_notes(asked, fits, Host()))
    assert any("800 MiB were not checked" in line for line in told)
    assert any("5 MiB were not checked" in line for line in told)


def test_an_estimate_that_begins_below_the_budget_and_is_above_it_is_neither_held_nor_refused() -> None:
    host = Host(cards=(card(),))
    said, reasons = verdict(forecast(device(1100, low_bytes=900 * MIB)), host)
    assert said == "unknown"
    assert "the estimate begins at 900 MiB" in reasons[0]
    assert verdict(forecast(device(1100, low_bytes=1001 * MIB)), host)[0] == "short"
    assert verdict(forecast(device(1000, high_bytes=1300 * MIB)), host)[0] == "holds"


def test_the_share_that_an_engine_takes_of_a_card_is_its_budget_and_the_rest_the_headroom() -> None:
    asked = forecast(device(800), rule=CardRule(ceilings={0: 790 * MIB}))
    fit = judged_scopes(asked, Host(cards=(card(),)))[1]
    assert (fit.verdict, fit.budget_bytes, fit.headroom) == ("too_big", 790 * MIB, 0.21)
    less = judged_scopes(asked, Host(cards=(card(free_mib=500),)))[1]
    assert (less.budget_bytes, less.reason) == (500 * MIB, "judged by free memory")
    assert judged_scopes(forecast(device(800), rule=CardRule()), Host(cards=(card(),)))[1].headroom == 0.15


def test_what_a_profile_calls_consumed_outside_is_counted_once() -> None:
    host = Host(cards=(card(outside_mib=150),))
    assert judged_scopes(forecast(device(800)), host)[1].want_bytes == 950 * MIB
    own = forecast(device(800), rule=CardRule(headroom=0.0, counts_outside=True))
    assert judged_scopes(own, host)[1].want_bytes == 800 * MIB
    by_free = judged_scopes(forecast(device(800)), Host(cards=(card(outside_mib=150, free_mib=850),)))[1]
    assert (by_free.verdict, by_free.want_bytes) == ("fits", 800 * MIB)


def test_a_card_that_shares_ram_is_asked_of_the_host_too() -> None:
    asked = forecast(device(800))
    shared = card(total=900, unified=True)
    said, reasons = verdict(asked, Host(ram_mib=1000, available_mib=700, cards=(shared,)))
    assert said == "short"
    assert reasons[0].startswith("host memory: 800 MiB wanted")
    fits = judged_scopes(asked, Host(ram_mib=1000, available_mib=850, cards=(shared,)))
    assert [(fit.verdict, fit.headroom) for fit in fits] == [("fits", 0.0), ("fits", 0.0)]
    carved = card(total=2000, unified=True)
    assert verdict(asked, Host(ram_mib=1000, available_mib=700, cards=(carved,)))[0] == "holds"


def test_what_lies_on_cards_that_only_the_engine_chooses_is_judged_against_all_of_them() -> None:
    rule = CardRule(headroom=0.0, together=True)
    host = Host(ram_mib=9000, cards=(card(0), card(1)))
    ram, together = judged_scopes(forecast(device(1900, None), rule=rule), host)
    assert (ram.want_bytes, together.card, together.verdict, together.margin_bytes) == (0, None, "fits", 100 * MIB)


@pytest.mark.parametrize(
    ("host", "budget"),
    [
        (Host(ram_mib=1000), 850),
        (Host(ram_mib=1000, available_mib=400), 340),
        (Host(ram_mib=1000, hugepages_mib=500), 425),
        (Host(ram_mib=1000, cgroup_limit_mib=200), 170),
        (Host(ram_mib=1000, available_mib=900, cgroup_limit_mib=200, cgroup_free_mib=100), 85),
    ],
    ids=["ram", "available", "hugepages", "cgroup", "cgroup-free"],
)
def test_the_host_is_judged_by_the_least_of_what_binds(host: Host, budget: int) -> None:
    fit = judged_scopes(forecast(Demand("offload", "host", "", MIB)), host)[0]
    assert fit.budget_bytes == budget * MIB


def test_pinned_memory_needs_the_limit_of_a_profile_and_a_note_tells_of_the_readers_own() -> None:
    asked = forecast(Demand("offload", "host", "", 300 * MIB, pinned=True))
    declared = Host(ram_mib=9000, memlock_mib=64)
    said, reasons = verdict(asked, declared)
    assert said == "short"
    assert "locked memory" in reasons[0]
    here = declared.model_copy(update={"source": "sysfs"})
    fits = judged_scopes(asked, here)
    assert judge(CONTRACT, asked, fits)[0] == "holds"
    assert any("300 MiB are pinned" in note and "may lock 64" in note for note in memory_notes(asked, fits, here))


@pytest.mark.parametrize(
    ("name", "host_mib", "card_mib", "margin_mib"),
    [("archon", 150_200, 31_856, 0), ("archon-pair", 148_920, 31_616, 240)],
)
def test_the_archon_endpoint_holds_with_every_scope_in_its_budget(
    repository: Path, name: str, host_mib: int, card_mib: int, margin_mib: int
) -> None:
    plan = plan_endpoint(load_endpoint(Path("env", f"{name}.toml"), {}, {}, repository))
    assert plan.verdict == "holds"
    ram, first, second = plan.fits
    assert (ram.want_bytes, first.want_bytes, first.margin_bytes) == (host_mib * MIB, card_mib * MIB, margin_mib * MIB)
    assert replace(first, card=None) == replace(second, card=None)
    assert all(demand.pinned for demand in plan.forecast.demands if demand.scope == "host")
    said = plan_json(plan)["fits"]
    assert [(row["scope"], row["card"], row["verdict"]) for row in said] == [
        ("host", None, "fits"), ("device", 0, "fits"), ("device", 1, "fits"),
    ]  # fmt: skip


LAYERS = tuple(Layer(i, "full", 8, 128, 128, 1024, 1024) for i in range(32))
MODEL = ModelFacts(
    "/m", "safetensors", Geometry("llama", "l", LAYERS, 4096, 32, 32_000, 131_072), 16 << 30,
    (TensorBytes("dense_ffn", "BF16", 16 << 30, 1),), 1, {"intermediate_size": 14_336},
)  # fmt: skip


def vllm(**knobs: Any) -> Endpoint:
    engine = Engine.model_validate({"kind": "vllm", "version": "0.32.0", "binary": "/x", "knobs": knobs})
    return Endpoint(contract=Contract(seqs=2, len=8192, kv_dtype="f16"), engine=engine, model=ModelRef(path="/m"))


@settings(deadline=None)
@given(st.integers(20_000, 200_000), st.sampled_from((1, 2, 4)), st.floats(0.3, 0.99))
def test_what_vllm_takes_of_a_card_blind_is_exactly_its_share_and_what_lies_beside_it(
    total: int, tp: int, share: float
) -> None:
    declared = vllm(**{"tensor-parallel-size": tp, "gpu-memory-utilization": round(share, 2)})
    host = Host(ram_mib=900_000, cards=tuple(card(2 + i, total, maker="nvidia") for i in range(tp)))
    for fit in judged_plan("e", declared, host, MODEL).fits[1:]:
        assert fit.card is not None
        assert fit.card >= 2
        if "kv_cache" in fit.by_class:
            beside = fit.want_bytes - int(total * MIB * round(share, 2))
            assert 300 * MIB - MIB < beside < 900 * MIB, "the driver's context, and collectives of several ranks"
            assert abs(fit.margin_bytes) < MIB or (fit.budget_bytes == total * MIB and fit.verdict == "unknown")
            assert {"activation", "scratchpad"} <= fit.by_class.keys()


def test_a_stated_cache_is_judged_with_all_that_lies_beside_it() -> None:
    def on(gib: int) -> str:
        declared = vllm(**{"kv-cache-memory-bytes": gib * GIB})
        return judged_plan(
            "e", declared, Host(ram_mib=900_000, cards=(card(0, 40_000, maker="nvidia"),)), MODEL
        ).verdict

    assert [on(gib) for gib in (4, 20, 24)] == ["holds", "holds", "short"]
