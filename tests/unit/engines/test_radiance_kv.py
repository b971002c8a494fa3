"""The KV law: every published figure within its rounding, and the properties that any law must have."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from radiance_cases import golden, law, manifest

from archonctl.engines.radiance.kv import DTYPES, era_of, kv_law, superseded_law
from archonctl.errors import DeclarationError

ERAS = st.sampled_from(["pair", "resolver"])
KINDS = st.sampled_from(DTYPES)
SEQS = st.integers(1, 64)


@pytest.mark.parametrize("case", golden()["tokens"], ids=lambda c: str(c["case"]))
def test_tokens_of_a_pool_are_the_published_figure(case: dict[str, Any]) -> None:
    found = law(case["kv_dtype"], case.get("era", "pair")).tokens(case["pool_mib"], case["seqs"])
    assert found == pytest.approx(case["printed"], abs=case["within"])


@pytest.mark.parametrize("case", golden()["pool"], ids=lambda c: str(c["case"]))
def test_the_pool_that_a_contract_needs_is_the_published_figure(case: dict[str, Any]) -> None:
    found = law(case["kv_dtype"]).pool_mib(case["seqs"] * case["len"], case["seqs"])
    assert found == pytest.approx(case["printed_mib"], abs=case["within"])


def test_a_token_costs_what_its_page_costs_by_four() -> None:
    assert law("fp8").kib_per_token == 7.3125
    assert law("bf16").kib_per_token == 13.8125
    assert law("bf16").kib_per_token / law("fp8").kib_per_token == pytest.approx(1.89, abs=0.005)


def test_the_live_boot_was_under_the_law_by_three_quarters_of_a_thousandth() -> None:
    predicted = law().tokens(3543, 3)
    assert (predicted - 386_904) / predicted == pytest.approx(0.00075, abs=0.000005)
    assert round(386_904 / 200_000, 2) == 1.93


def test_five_gib_fund_the_contract_and_1_3_percent() -> None:
    assert law().tokens(5120, 3) / 600_000 == pytest.approx(1.013, abs=0.0005)


def test_four_bf16_sequences_leave_17441_mib_of_slab_under_the_first_ceiling() -> None:
    assert 29_120 - law("bf16").pool_mib(800_000, 4) == pytest.approx(17_441, abs=0.5)


def test_checkpoints_are_in_the_pool_before_1_3_0_only() -> None:
    assert law(era="pair").fixed_mib(3) == 3 * 110 + 448
    assert law(era="resolver").fixed_mib(3) == 3 * 110
    assert kv_law(manifest(), "fp8", "pair", checkpoint_slots=16).fixed_mib(3) == 330 + 16 * 56


@pytest.mark.parametrize(("version", "era"), [((1, 2, 9), "pair"), ((1, 3, 0), "resolver"), ((1, 8, 1), "resolver")])
def test_the_era_changes_at_1_3_0(version: tuple[int, ...], era: str) -> None:
    assert era_of(version) == era


def test_the_superseded_bf16_rate_is_kept_apart_and_fp8_has_none() -> None:
    old = superseded_law(manifest(), law("bf16"))
    assert old is not None
    assert old.kib_per_token == 14.625
    assert old.tokens(6912, 2) == pytest.approx(437_187, abs=0.5)
    assert superseded_law(manifest(), law("fp8")) is None


@pytest.mark.parametrize("dtype", ["f16", "q8_0", "fp8/bf16", "fp8_e4m3", "FP8", ""])
def test_a_dtype_that_the_engine_has_not_is_refused(dtype: str) -> None:
    with pytest.raises(DeclarationError) as err:
        kv_law(manifest(), dtype, "pair")
    assert err.value.code == "kv-dtype-unknown"
    assert "bf16" in err.value.message


@given(tokens=st.integers(0, 10**9), seqs=SEQS, dtype=KINDS, era=ERAS)
def test_tokens_and_pool_are_inverse(tokens: int, seqs: int, dtype: str, era: Any) -> None:
    found = law(dtype, era)
    assert found.tokens(found.pool_mib(tokens, seqs), seqs) == pytest.approx(tokens, abs=1e-3)


@given(pool=st.floats(0, 1e7), more=st.floats(0, 1e6), seqs=SEQS, dtype=KINDS, era=ERAS)
def test_a_larger_pool_never_holds_fewer_tokens(pool: float, more: float, seqs: int, dtype: str, era: Any) -> None:
    assert law(dtype, era).tokens(pool + more, seqs) >= law(dtype, era).tokens(pool, seqs) >= 0


@given(pool=st.floats(0, 1e7), seqs=SEQS, dtype=KINDS, era=ERAS)
def test_more_sequences_never_raise_the_tokens(pool: float, seqs: int, dtype: str, era: Any) -> None:
    assert law(dtype, era).tokens(pool, seqs + 1) <= law(dtype, era).tokens(pool, seqs)


@given(pool=st.floats(0, 1e7), seqs=SEQS, era=ERAS)
def test_bf16_never_holds_more_than_fp8(pool: float, seqs: int, era: Any) -> None:
    assert law("bf16", era).tokens(pool, seqs) <= law("fp8", era).tokens(pool, seqs)
