"""Intervals of printed figures, and the fit of classed demands."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archonctl.memory.demand import Capacity, Demand, fit, fit_scopes
from archonctl.memory.interval import MIB, Interval


@pytest.mark.parametrize(
    ("text", "low", "best", "high"),
    [
        ("4.20", 4.195, 4.2, 4.205),
        ("2.0", 1.95, 2.0, 2.05),
        ("556,348", 556348, 556348, 556348),
        ("-24.42", -24.425, -24.42, -24.415),
    ],
)
def test_a_printed_figure_carries_its_rounding(text: str, low: float, best: float, high: float) -> None:
    read = Interval.rounded(text)
    assert (read.low, read.best, read.high) == pytest.approx((low, best, high))


def test_an_interval_out_of_order_is_refused() -> None:
    with pytest.raises(ValueError, match="not an interval"):
        Interval(2, 1, 3)


@given(st.decimals(min_value=-(10**6), max_value=10**6, places=2, allow_nan=False))
def test_the_true_value_lies_in_the_interval_of_its_print(value: object) -> None:
    assert Interval.rounded(f"{value}").contains(float(str(value)))


def test_free_unknown_falls_back_to_the_total_and_says_so() -> None:
    answer = fit([Demand("weights", "device", "f16", 850)], "device", Capacity(total_bytes=1000, known=True))
    assert (answer.verdict, answer.budget_bytes, answer.margin_bytes) == ("fits", 850, 0)
    assert "free memory is unknown" in answer.reason


def test_the_host_is_not_charged_for_the_device() -> None:
    demands = [Demand("weights", "device", "f16", 10**12), Demand("offload", "host", "f16", 10)]
    assert fit(demands, "host", Capacity(free_bytes=100, free_known=True)).want_bytes == 10


@pytest.mark.parametrize("headroom", [-0.1, 1.0, 1.5])
def test_a_senseless_headroom_is_refused_and_never_ignored(headroom: float) -> None:
    with pytest.raises(ValueError, match="headroom"):
        fit([], "host", Capacity(), headroom)


@given(
    st.lists(st.integers(0, 2**40), max_size=6),
    st.integers(0, 2**42),
    st.integers(0, 2**40),
)
def test_more_memory_never_turns_a_fit_into_a_refusal(sizes: list[int], free: int, more: int) -> None:
    demands = [Demand("unknown", "host", "", size) for size in sizes]
    small = fit(demands, "host", Capacity(free_bytes=free, free_known=True))
    large = fit(demands, "host", Capacity(free_bytes=free + more, free_known=True))
    assert not (small.verdict == "fits" and large.verdict == "too_big")


def test_what_is_resident_is_counted_only_where_free_memory_is_unknown() -> None:
    demands = [Demand("weights", "device", "f16", 800, resident=True), Demand("kv_cache", "device", "f16", 80)]
    by_free = fit(demands, "device", Capacity(1000, 100, known=True, free_known=True))
    assert (by_free.verdict, by_free.want_bytes, by_free.by_class) == ("fits", 80, {"kv_cache": 80})
    by_total = fit(demands, "device", Capacity(1000, known=True))
    assert (by_total.verdict, by_total.want_bytes) == ("too_big", 880)


def test_pinned_bytes_must_fit_into_what_may_be_locked() -> None:
    demands = [Demand("offload", "host", "", 600 * MIB, pinned=True), Demand("weights", "host", "", 100 * MIB)]
    roomy = Capacity(10_000 * MIB, 10_000 * MIB, known=True, free_known=True, lockable_bytes=512 * MIB)
    answer = fit(demands, "host", roomy)
    assert (answer.verdict, answer.want_bytes, answer.budget_bytes, answer.margin_bytes) == (
        "too_big",
        600 * MIB,
        512 * MIB,
        -88 * MIB,
    )
    assert answer.finding is not None
    assert "locked memory" in answer.finding.message
    assert fit(demands, "host", Capacity(lockable_bytes=600 * MIB)).verdict == "unknown"


def test_a_refusal_names_both_numbers_the_margin_and_the_classes() -> None:
    demands = [Demand("kv_cache", "host", "f16", 900 * MIB), Demand("weights", "host", "q4", 100 * MIB)]
    found = fit(demands, "host", Capacity(free_bytes=1000 * MIB, free_known=True)).finding
    assert found is not None
    assert (found.code, found.severity) == ("memory-short", "error")
    assert "1,000 MiB wanted, 850 MiB may be used" in found.message
    assert found.fix == "MiB by class: kv_cache 900, weights 100"


def test_unknown_memory_proceeds_and_says_so() -> None:
    found = fit([Demand("weights", "host", "", 5 * MIB)], "host", Capacity()).finding
    assert found is not None
    assert (found.code, found.severity) == ("memory-unknown", "warning")
    assert "5 MiB were not checked" in found.message
    assert fit([], "host", Capacity()).finding is None


def test_each_card_is_judged_alone_and_a_demand_of_no_card_stands_on_each() -> None:
    demands = [
        Demand("weights", "device", "f16", 50),
        Demand("kv_cache", "device", "f16", 30, card=1),
        Demand("activation", "device", "f16", 7, card=5),
        Demand("offload", "host", "f16", 9),
    ]
    cards = {0: Capacity(100, known=True), 1: Capacity(75, known=True)}
    host, first, second, unheard = fit_scopes(demands, Capacity(10, known=True), cards, device_headroom=0.0)
    assert (host.verdict, host.want_bytes) == ("too_big", 9)
    assert (first.card, first.verdict, first.want_bytes) == (0, "fits", 50)
    assert (second.card, second.verdict, second.want_bytes, second.margin_bytes) == (1, "too_big", 80, -5)
    assert (unheard.card, unheard.verdict) == (5, "unknown")


def test_a_demand_of_less_than_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="no demand"):
        fit([Demand("weights", "host", "", -1)], "host", Capacity())


sizes = st.lists(
    st.builds(
        Demand,
        st.sampled_from(["weights", "kv_cache", "offload"]),
        st.just("device"),
        st.just(""),
        st.integers(0, 2**40),
        card=st.none() | st.integers(0, 3),
    ),
    max_size=8,
)


@given(sizes, st.integers(1, 4), st.integers(0, 2**42), st.floats(0, 0.9))
def test_no_byte_is_lost_between_the_cards_and_every_verdict_follows_its_numbers(
    demands: list[Demand], count: int, total: int, headroom: float
) -> None:
    cards = {index: Capacity(total, known=True) for index in range(count)}
    fits = fit_scopes(demands, Capacity(), cards, device_headroom=headroom)[1:]
    for each in fits:
        mine = [demand.bytes for demand in demands if demand.card in (None, each.card)]
        assert each.want_bytes == sum(mine)
    for each in fits:
        assert sum(each.by_class.values()) == each.want_bytes
        if each.verdict != "unknown":
            assert each.margin_bytes == each.budget_bytes - each.want_bytes
            assert (each.verdict == "fits") == (each.margin_bytes >= 0)


@pytest.mark.parametrize(("mapped", "verdict"), [(85, "fits"), (86, "unknown"), (100, "unknown"), (101, "too_big")])
def test_pages_of_a_file_may_lie_where_headroom_was_to_be_kept(mapped: int, verdict: str) -> None:
    asked = Demand("weights", "host", "", mapped * MIB, droppable=True)
    seen = fit([asked], "host", Capacity(100 * MIB, known=True), 0.15)
    assert seen.verdict == verdict
    assert seen.want_low_bytes == mapped * MIB
    own = fit([replace(asked, droppable=False)], "host", Capacity(100 * MIB, known=True), 0.15)
    assert own.verdict == ("fits" if mapped == 85 else "too_big")
