"""Predictions scored: the measured figures of the archon host as they fell against what had been foretold."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archonctl.deployment.schema import Prediction
from archonctl.ledger.values import BootLedger, Reading
from archonctl.memory.interval import Interval
from archonctl.probe.predictions import figures, find_figure, judge, prefill_sizes, score_all
from archonctl.probe.values import Leg

SLAB_TPS = {22_208: 3397, 24_000: 3290, 26_071: 4379}
"""Prefill tokens a second at 43,500 tokens single-stream by MiB of expert slab, measured on the archon host."""


def scored(name: str, expect: float, actual: float, band: float = 0.03) -> str:
    return judge(Prediction(name=name, expect=expect, band=band), actual, actual, actual).score


def test_a_straight_line_through_the_slab_is_falsified_and_a_threshold_is_not() -> None:
    assert scored("prefill_tps_43k", 3850, SLAB_TPS[24_000]) == "falsified"
    assert scored("prefill_tps_43k", SLAB_TPS[22_208], SLAB_TPS[24_000]) == "falsified"  # 3.15 % off
    assert scored("prefill_tps_43k", 3290, 3290 * 1.03) == "hit"
    assert scored("prefill_tps_43k", 3290, 3290 * 1.031) == "falsified"


def test_what_a_dtype_costs_is_scored_one_figure_at_a_time() -> None:
    assert scored("prefill_tps_43k", 4379, 3126) == "falsified"  # bf16 -> fp8: 29 % less
    assert scored("draft_acceptance", 0.661, 0.740) == "falsified"
    assert scored("decode_tps", 100.0, 102.9) == "hit"
    found = judge(Prediction(name="prefill_tps_43k", expect=4379), 3126, 3126, 3126)
    assert found.off == pytest.approx(-0.286, abs=0.001)


def test_a_boot_that_is_better_than_foretold_falsifies_it_all_the_same() -> None:
    ledger = BootLedger("radiance", figures={"kv_tokens": Reading(Interval.exact(640_000, "log"), 3, "kv")})
    legs = [Leg("ledger", "pass", "m", numbers={"kv_tokens": 640_000})]
    (found,) = score_all([Prediction(name="kv_tokens", expect=600_348)], legs, ledger)
    assert (found.score, found.actual, found.unit) == ("falsified", 640_000, "tokens")


def test_a_rounded_figure_is_judged_by_both_ends() -> None:
    wanted = Prediction(name="kv_gib", expect=4.2, band=0.001)
    assert judge(wanted, 4.20, 4.195, 4.205).score == "too rounded"
    assert judge(wanted.model_copy(update={"band": 0.01}), 4.20, 4.195, 4.205).score == "hit"
    assert judge(wanted, 4.30, 4.295, 4.305).score == "falsified"


def test_what_was_not_measured_is_said_with_why_and_never_scored() -> None:
    legs = [Leg("interference", "no evidence", "too few steps")]
    wanted = [Prediction(name=name, expect=1) for name in ("step_ms", "ttft_s", "kv_tokens", "warp_factor")]
    found = score_all(wanted, legs, None)
    assert {each.score for each in found} == {"not measured"}
    assert "too few steps" in found[0].why
    assert "did not run" in found[1].why
    assert "boot log" in found[2].why
    assert "known: kv_tokens" in found[3].why


def test_the_names_are_a_table_with_units_and_sources() -> None:
    names = [row.name for row in figures()]
    assert len(set(names)) == len(names)
    for row in figures():
        assert row.source
        assert row.about
        assert row.unit in {"tokens", "tokens/s", "s", "ms", "ratio"}
        if "{n}" not in row.name:
            assert find_figure(row.name) == row


def test_a_name_may_carry_a_size() -> None:
    assert prefill_sizes([Prediction(name="prefill_tps_43k", expect=1)]) == {"prefill_tps_43k": 43_500}
    row = find_figure("prefill_tps_8k")
    assert row is not None
    assert (row.key, row.leg) == ("prefill_tps_8k", "prefill")
    assert find_figure("prefill_tps_43") is None


def test_every_name_that_a_shipped_declaration_foretells_is_measured() -> None:
    for path in (Path(__file__).parents[3] / "env").glob("*.toml"):
        for each in tomllib.loads(path.read_text("utf-8")).get("predict", []):
            assert find_figure(each["name"]), f"{path.name}: {each['name']}"


@given(st.floats(-1e9, 1e9), st.floats(0.001, 0.99), st.floats(0, 1e9), st.floats(0, 1e6))
def test_a_score_follows_from_the_ends(expect: float, band: float, low: float, width: float) -> None:
    found = judge(Prediction(name="x", expect=expect, band=band), low, low, low + width)
    inside, outside = found.score == "hit", found.score == "falsified"
    assert not (inside and outside)
    if width == 0 and abs(low - expect) <= abs(expect) * band:
        assert inside
