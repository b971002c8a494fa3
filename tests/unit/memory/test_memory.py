"""Intervals of printed figures, and the fit of classed demands."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archonctl.memory.demand import Capacity, Demand, fit
from archonctl.memory.interval import Interval


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
