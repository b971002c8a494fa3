"""The table and the code name the same metrics, and no label can grow without bound."""

from __future__ import annotations

import json
import re

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from archonctl.guard.answers import error_body, error_headers, error_json
from archonctl.guard.metrics import HOWS, OUTCOMES, REASONS, GuardMetrics
from archonctl.guard.need import Need, TooLong
from archonctl.guard.refusals import client_full, never_fits, not_now, queue_full
from archonctl.guard.values import Ask, Capacity, Refusal
from archonctl.guard.wait import Flight, ServiceTimes
from archonctl.observe.instruments import rows


def used() -> GuardMetrics:
    metrics = GuardMetrics()
    metrics.limits(Capacity(200_000, 556_348, 3))
    metrics.planned(200_000, 156_348)
    metrics.admitted(0.5)
    metrics.left_waiting()
    metrics.passed_unknown("media")
    metrics.refused(Refusal(503, "pool-busy", ""))
    metrics.refused(Refusal(429, "client-queue-full", ""))
    return metrics


def test_the_table_and_the_code_agree() -> None:
    shown = {each.name: each for each in text_string_to_metric_families(generate_latest(used().registry).decode())}
    published = {row.name.removesuffix("_total"): row for row in rows("guard").values()}
    assert set(shown) == set(published)
    for name, row in published.items():
        assert (shown[name].type, shown[name].documentation) == (row.kind, row.help)
        for sample in shown[name].samples:
            assert set(sample.labels) - {"le"} == set(row.labels), sample
        assert row.name.startswith("archon_guard_")
        assert (row.kind == "counter") == row.name.endswith("_total")


def test_every_outcome_is_there_before_it_first_happens() -> None:
    text = generate_latest(GuardMetrics().registry).decode()
    for name, label, values in (
        ("retries", "outcome", OUTCOMES),
        ("passed_unknown", "reason", REASONS),
        ("counts", "how", HOWS),
    ):
        for value in values:
            assert f'archon_guard_{name}_total{{{label}="{value}"}} 0.0' in text
    assert "archon_guard_capacity_tokens{" not in text, "unknown is never 0"
    assert "archon_guard_capacity_slots NaN" in text


def test_a_reason_that_nobody_knows_makes_no_new_label() -> None:
    metrics = GuardMetrics()
    metrics.passed_unknown("whatever a client wrote")
    assert "whatever" not in generate_latest(metrics.registry).decode()


def test_the_latest_plan_is_shown_with_its_margin() -> None:
    text = generate_latest(used().registry).decode()
    assert "archon_guard_plan_want_tokens 200000.0" in text
    assert "archon_guard_plan_budget_tokens 156348.0" in text
    assert "archon_guard_plan_margin_tokens -43652.0" in text


def test_a_refusal_is_an_error_object_with_its_numbers() -> None:
    need = Need(200_000, 1)
    refusal = not_now("pool", need, Need(400_000, 2), 0, Need(556_348, 3), 41, 30.0)
    error = json.loads(error_body(refusal))["error"]
    assert (error["type"], error["code"], error["param"]) == ("server_error", "pool-busy", None)
    assert error["capacity"] == {
        "class": "kv_cache",
        "want_tokens": 200_000,
        "budget_tokens": 156_348,
        "margin_tokens": -43_652,
        "largest_max_tokens": None,
        "retry_after_s": 41,
        "breakdown_tokens": {"pool": 556_348, "admitted": 400_000, "waiting": 0, "asked": 200_000},
    }
    assert ("Retry-After", "41") in error_headers(refusal)
    assert "capacity" not in json.dumps(error_json(Refusal(401, "key-missing", "no key")))


def test_a_class_of_memory_is_named_only_where_memory_is_short() -> None:
    one, few = Need(10, 1), Need(100, 2)
    ask = Ask("c", (20,), exact=True, max_tokens=None)
    short = (not_now("pool", one, few, 0, few, 1, 1.0), never_fits(ask, TooLong("window", 20, 10, None)))
    other = (
        not_now("slots", one, few, 0, few, 1, 1.0),
        queue_full(5, one, few, 0, 1),
        client_full(5, one, 1),
        Refusal(401, "key-missing", "a key is needed"),
    )
    metrics = GuardMetrics()
    for each in (*short, *other):
        metrics.refused(each)
    text = generate_latest(metrics.registry).decode()
    assert set(re.findall(r'refusals_total\{class="kv_cache",code="(.+?)"\}', text)) == {each.code for each in short}
    assert set(re.findall(r'refusals_total\{class="none",code="(.+?)"\}', text)) == {each.code for each in other}


@pytest.mark.parametrize(
    ("seen", "flights", "short", "after"),
    [
        ([], [], Need(10, 1), 1),
        ([], [(100, 7.0)], Need(50, 0), 7),  # as long again as it has taken
        ([(100, 10.0)], [(100, 4.0)], Need(50, 0), 6),
        ([(100, 10.0)], [(100, 40.0)], Need(50, 0), 40),  # past what is usual
        ([(100, 10.0)], [(100, 4.0), (200, 4.0)], Need(150, 0), 16),  # the longer one is needed too
        ([(100, 10.0)], [(100, 0.0)], Need(300, 0), 30),  # three times what runs
        ([(1, 9_000.0)], [(1, 0.0)], Need(1, 0), 3_600),
    ],
)
def test_retry_after_comes_from_how_long_requests_were_seen_to_take(
    seen: list[tuple[int, float]], flights: list[tuple[int, float]], short: Need, after: int
) -> None:
    times = ServiceTimes()
    for tokens, seconds in seen:
        times.saw(seconds, Need(tokens, 1))
    assert times.retry_after_s(short, [Flight(Need(tokens, 1), age) for tokens, age in flights]) == after
