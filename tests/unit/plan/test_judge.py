"""The one rule that says holds, short or unknown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archonctl.deployment.schema import Contract
from archonctl.engines.base import Forecast, Problem
from archonctl.host.capacity import host_capacity
from archonctl.host.profile import Host
from archonctl.memory.demand import Capacity, Demand, fit
from archonctl.memory.interval import MIB, Interval
from archonctl.plan.judge import judge

CONTRACT = Contract(seqs=3, len=200_000, kv_dtype="fp8", margin=0.01)


def forecast(
    tokens: Interval | None,
    *,
    seqs: int | None = None,
    length: int | None = None,
    problems: tuple[Problem, ...] = (),
) -> Forecast:
    return Forecast("test", tokens, seqs, length, cards=(), demands=(), problems=problems)


def test_enough_at_both_ends_holds() -> None:
    assert judge(CONTRACT, forecast(Interval(600_000, 606_000, 610_000)), ()) == ("holds", ())


def test_the_margin_counts_for_the_best_estimate() -> None:
    verdict, reasons = judge(CONTRACT, forecast(Interval.exact(605_999)), ())
    assert verdict == "short"
    assert "605,999 tokens, 606,000 wanted" in reasons[0]


def test_a_cautious_end_under_the_contract_is_not_called_holding() -> None:
    verdict, reasons = judge(CONTRACT, forecast(Interval(599_999, 650_000, 700_000)), ())
    assert verdict == "unknown"
    assert "599,999" in reasons[0]


def test_no_tokens_is_unknown_and_never_zero() -> None:
    verdict, reasons = judge(CONTRACT, forecast(None), ())
    assert verdict == "unknown"
    assert "0" not in reasons[0]


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ({"seqs": 2}, "2 sequences at once, 3 promised"),
        ({"length": 199_999}, "a sequence may hold 199,999 tokens, 200,000 promised"),
        ({"problems": (Problem("x", "impossible"),)}, "impossible"),
    ],
)
def test_a_hard_limit_is_short_however_many_tokens_there_are(limits: dict[str, object], said: str) -> None:
    verdict, reasons = judge(CONTRACT, forecast(Interval.exact(10**9), **limits), ())  # type: ignore[arg-type]
    assert verdict == "short"
    assert reasons == (said,)


def test_a_hard_limit_outranks_unknown_tokens() -> None:
    assert judge(CONTRACT, forecast(None, seqs=1), ())[0] == "short"


def test_too_little_host_memory_is_short_and_names_the_dominant_class() -> None:
    demands = [Demand("kv_cache", "host", "f16", 900 * MIB), Demand("weights", "host", "q4", 100 * MIB)]
    too_big = fit(demands, "host", Capacity(free_bytes=1000 * MIB, free_known=True))
    verdict, reasons = judge(CONTRACT, forecast(Interval.exact(10**9)), (too_big,))
    assert verdict == "short"
    assert "1,000 MiB wanted, 850 MiB may be used" in reasons[0]
    assert "150 MiB short" in reasons[0]
    assert "kv_cache" in reasons[0]


@given(st.integers(0, 10**7), st.integers(0, 10**6), st.integers(0, 10**6), st.integers(1, 64), st.integers(16, 10**6))
def test_more_tokens_never_turn_a_holding_contract_short(
    best: int, below: int, more: int, seqs: int, length: int
) -> None:
    contract = Contract(seqs=seqs, len=length, kv_dtype="f16")
    first = judge(contract, forecast(Interval(max(0, best - below), best, best)), ())[0]
    second = judge(contract, forecast(Interval(max(0, best - below) + more, best + more, best + more)), ())[0]
    rank = {"short": 0, "unknown": 1, "holds": 2}
    assert rank[second] >= rank[first]


def test_the_tightest_of_ram_available_and_cgroup_decides() -> None:
    host = Host(ram_mib=1000, available_mib=800, cgroup_limit_mib=600)
    assert host_capacity(host) == Capacity(600 * MIB, 600 * MIB, known=True, free_known=True)


def test_unknown_ram_is_not_zero_ram() -> None:
    capacity = host_capacity(Host())
    assert not capacity.known
    assert not capacity.free_known
    assert fit([Demand("weights", "host", "f16", 10**15)], "host", capacity).verdict == "unknown"


def test_a_cgroup_limit_alone_is_a_known_total_with_unknown_free() -> None:
    assert host_capacity(Host(cgroup_limit_mib=512)) == Capacity(512 * MIB, 512 * MIB, known=True, free_known=False)
