"""Ceilings by hand and by the settle line, pinned memory, all-reduce rows."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from radiance_cases import golden, host, manifest

from archonctl.engines.radiance.memory import (
    allreduce_rows,
    ceiling_mib,
    exact_rows,
    hand_ceiling_mib,
    pages,
    ttm_floor_mib,
)
from archonctl.host.profile import Card

CARD = host().cards[0]


def test_the_hand_ceiling_is_two_mib_over_the_one_that_was_stated() -> None:
    assert hand_ceiling_mib(CARD) == 31_856 - 1_710 - 1_024 == 29_122
    assert ceiling_mib(CARD).at_ceiling_mib == 29_120


def test_the_settle_line_gives_30969_with_the_rounding_of_its_gib() -> None:
    ceiling = ceiling_mib(CARD)
    assert ceiling.settle_free_mib is not None
    claimable = ceiling.settle_free_mib.best - 209.19
    assert claimable == pytest.approx(1_849, abs=0.5)
    assert ceiling.value.best == pytest.approx(30_969, abs=0.5)
    assert ceiling.value.low == pytest.approx(30_969 - 5.12, abs=0.5)
    assert ceiling.value.high == pytest.approx(30_969 + 5.12, abs=0.5)


@pytest.mark.parametrize("pair", golden()["pair"], ids=lambda p: f"{p['slab_mib']}/{p['pool_mib']}")
def test_every_pair_that_shipped_is_under_the_settle_ceiling(pair: dict[str, Any]) -> None:
    left = ceiling_mib(CARD).value.best - pair["slab_mib"] - pair["pool_mib"]
    assert left == pytest.approx(pair["left_mib"], abs=0.5)
    assert left > 0


def test_what_stays_free_counts_the_floor_and_what_is_above_it_does_not() -> None:
    ceiling = ceiling_mib(CARD)
    free = ceiling.free_mib(25_600, 5_120)
    assert free is not None
    assert free.best == pytest.approx(458, abs=0.5)
    assert free.best - 209.19 == pytest.approx(249, abs=0.5)


def test_without_a_settle_line_the_hand_ceiling_is_all_there_is() -> None:
    ceiling = ceiling_mib(CARD.model_copy(update={"settle": None}))
    assert ceiling.value.is_exact
    assert ceiling.value.best == 29_122
    assert ceiling.free_mib(1, 1) is None


@pytest.mark.parametrize("case", golden()["ttm"], ids=lambda c: str(c["case"]))
def test_the_pinned_memory_floor_is_the_published_figure(case: dict[str, Any]) -> None:
    floor = ttm_floor_mib(2, case["host_pool_mib"], manifest().host.ngram_table_mib, 8_192, 2_048)
    assert floor == case["floor_mib"]
    assert pages(floor, 4096) == case["pages"]


def test_limits_in_pages_are_mib_times_256() -> None:
    assert pages(125_988, 4096) == 32_252_928 == host().ttm_pages_limit
    assert pages(204_800, 4096) == 52_428_800
    assert host().ttm_target_mib == 204_800
    assert host().ram_mib == 2 * 125_988


@given(mib=st.integers(0, 10**7), page=st.sampled_from([4096, 16384, 65536]))
def test_pages_always_hold_the_mib_they_stand_for(mib: int, page: int) -> None:
    assert pages(mib, page) * page >= mib * 2**20 > (pages(mib, page) - 1) * page


def test_a_page_larger_than_a_mib_is_rounded_up_to_one_page() -> None:
    assert pages(1, 2 * 2**20) == 1


@pytest.mark.parametrize(("seqs", "rows"), [(2, 6), (3, 9), (4, 12)])
def test_rows_of_a_decode_step(seqs: int, rows: int) -> None:
    assert allreduce_rows(seqs, 2) == rows


def test_the_compressed_wire_is_exact_up_to_25_rows() -> None:
    assert exact_rows(manifest().hidden, 128) == 25


@given(kib=st.integers(1, 4096))
def test_one_row_more_than_exact_reaches_the_size_at_which_the_wire_begins(kib: int) -> None:
    rows = exact_rows(manifest().hidden, kib)
    assert rows * 2560 * 2 < kib * 1024 <= (rows + 1) * 2560 * 2


def test_a_card_without_known_consumption_has_its_whole_size_as_ceiling() -> None:
    card = Card(index=0, name="bare", total_mib=24_000)
    assert ceiling_mib(card).value.best == 24_000
