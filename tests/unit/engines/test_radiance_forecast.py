"""One declaration on one host: both eras, evidence against arithmetic, and what is not known."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from radiance_cases import boot, declared, forecast, host, model, shown, verdict

from archonctl.engines.radiance.adapter import ADAPTER
from archonctl.errors import DeclarationError
from archonctl.memory.interval import MIB

# ---------------------------------------------------------------- the declarations that ship


def test_the_archon_endpoint_holds_and_its_cautious_end_covers_the_contract() -> None:
    endpoint = declared()
    found = forecast(endpoint)
    assert found.kv_tokens is not None
    assert found.kv_tokens.low >= 600_000
    assert found.kv_tokens.best >= 606_000
    assert verdict(endpoint, found) == "holds"
    assert found.levers == ()
    assert found.problems == ()


def test_with_the_host_pool_of_the_first_boot_its_ledger_is_the_answer_exactly() -> None:
    endpoint = declared(knobs={"host-pool-mib": 44_928})
    found = forecast(endpoint)
    assert found.kv_tokens is not None
    assert found.kv_tokens.is_exact
    assert found.kv_tokens.best == 556_348
    assert found.kv_tokens.source == "log"
    assert verdict(endpoint, found) == "short"
    assert endpoint.contract.tokens - found.kv_tokens.best == 43_652
    assert endpoint.contract.tokens_with_margin - found.kv_tokens.best == 49_652
    assert "43,652" in shown(found)
    assert "49,652" in shown(found)


def test_the_pair_endpoint_holds_with_608028_tokens() -> None:
    endpoint = declared("archon-pair")
    found = forecast(endpoint)
    assert found.kv_tokens is not None
    assert found.kv_tokens.best == pytest.approx(608_028, abs=0.5)
    assert verdict(endpoint, found) == "holds"
    assert [card.index for card in found.cards] == [0, 1]
    for card in found.cards:
        assert (card.total_mib, card.slab_mib, card.pool_mib) == (31_856, 25_600, 5_120)
        assert card.ceiling_mib == pytest.approx(30_969, abs=0.5)
        assert card.pool_needed_mib == pytest.approx(5_105.5, abs=0.1)
        assert card.margin_mib == pytest.approx(14.5, abs=0.1)


def test_a_fourth_full_height_conversation_is_short_in_the_pair_era() -> None:
    endpoint = declared("archon-pair", contract={"seqs": 4, "margin": 0.0})
    found = forecast(endpoint)
    assert verdict(endpoint, found) == "short"
    assert found.cards[0].pool_needed_mib == pytest.approx(6_601, abs=0.5)


@pytest.mark.parametrize("name", ["archon", "archon-pair"])
def test_every_demand_of_the_host_adds_up_to_the_pinned_memory_floor(name: str) -> None:
    found = forecast(declared(name))
    pinned = sum(d.bytes for d in found.demands if d.scope == "host")
    assert pinned == (found.host_need.ttm_floor_mib or 0) * MIB
    assert {d.cls for d in found.demands if d.scope == "host"} == {"offload", "weights", "ddr_cache", "scratchpad"}
    assert all(d.card is None for d in found.demands if d.scope == "host")


@pytest.mark.parametrize(("name", "floor"), [("archon", 150_200), ("archon-pair", 148_920)])
def test_the_pinned_memory_floor_comes_from_the_declaration(name: str, floor: int) -> None:
    need = forecast(declared(name)).host_need
    assert need.ttm_floor_mib == floor
    assert need.ttm_floor_pages == floor * 256


@pytest.mark.parametrize("name", ["archon", "archon-pair"])
def test_the_demands_of_a_card_fit_the_card(name: str) -> None:
    found = forecast(declared(name))
    for card in found.cards:
        rows = [d for d in found.demands if d.card == card.index]
        assert {"weights", "kv_cache", "activation"} <= {d.cls for d in rows}
        assert sum(d.bytes for d in rows) / MIB <= (card.total_mib or 0) + 1
        assert [d.bytes for d in rows if d.cls == "activation"] == [896 * MIB]


def test_what_is_not_modelled_is_listed() -> None:
    assert any("prefix cache" in item for item in forecast(declared()).not_modelled)


# ---------------------------------------------------------------- evidence outranks arithmetic


def test_without_a_boot_the_resolver_era_is_unknown_and_says_how_to_get_evidence() -> None:
    endpoint = declared(boots=[])
    found = forecast(endpoint)
    assert found.kv_tokens is None
    assert verdict(endpoint, found) == "unknown"
    assert "[[boot]]" in shown(found)
    assert found.cards[0].pool_mib is None
    assert not any(d.cls == "kv_cache" for d in found.demands)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"engine_version": "1.7.3"}, "1.8 is declared"),
        ({"engine_version": "2.8.1"}, "1.8 is declared"),
        ({"kv_dtype": "bf16"}, "KV dtype"),
        ({"knobs": {"max-num-batched-tokens": 4096}}, "max-num-batched-tokens"),
        ({"knobs": {"num-speculative-tokens": 3}}, "num-speculative-tokens"),
        ({"knobs": {"tp": 1}}, "tp"),
        ({"knobs": {"a-knob-of-tomorrow": 1}}, "a-knob-of-tomorrow"),
    ],
)
def test_a_boot_that_no_law_carries_counts_for_nothing_and_says_why(changes: dict[str, object], reason: str) -> None:
    found = forecast(declared(boots=[boot(**changes)]))
    assert found.kv_tokens is None
    assert reason in shown(found)
    assert "does not count" in shown(found)


def test_another_patch_version_still_counts() -> None:
    assert forecast(declared(boots=[boot(engine_version="1.8.0")])).kv_tokens is not None


def test_knobs_that_shape_no_split_do_not_matter() -> None:
    same = boot(knobs={**boot().knobs, "prefix-cache-mib": 4096, "busy-prefill-chunk": "off", "temp": 0.5})
    found = forecast(declared(knobs={"host-pool-mib": 44_928}, boots=[same])).kv_tokens
    assert found is not None
    assert found.best == 556_348


def test_a_knob_in_another_spelling_is_the_same_knob() -> None:
    same = boot(knobs={"host_pool_mib": "44928", "tp": 2, "gpu-headroom": 96})
    found = forecast(declared(knobs={"host-pool-mib": 44_928}, boots=[same])).kv_tokens
    assert found is not None
    assert found.is_exact


def test_headroom_that_differs_widens_the_range_and_is_said() -> None:
    narrow, wide = (forecast(declared(knobs={"host-pool-mib": 44_928, "gpu-headroom-mib": mib})) for mib in (96, 196))
    assert narrow.kv_tokens is not None
    assert wide.kv_tokens is not None
    assert wide.kv_tokens.low < narrow.kv_tokens.low
    assert wide.kv_tokens.high == narrow.kv_tokens.high
    assert "gpu-headroom-mib differs" in shown(wide)


def test_knobs_that_the_boot_does_not_record_are_named() -> None:
    found = forecast(declared(boots=[boot(knobs={"host-pool-mib": 44_928})]))
    assert "does not record" in shown(found)
    assert "max-num-batched-tokens" in shown(found)


def test_the_boot_with_the_same_knobs_wins_over_one_that_must_be_carried() -> None:
    second = boot(kv_tokens=598_000, kv_gib="4.49", knobs={**boot().knobs, "host-pool-mib": 45_568})
    for boots in ([boot(), second], [second, boot()]):
        found = forecast(declared(boots=boots)).kv_tokens
        assert found is not None
        assert found.is_exact
        assert found.best == 598_000


def test_of_two_boots_with_the_same_knobs_the_later_one_counts() -> None:
    found = forecast(declared(boots=[boot(), boot(kv_tokens=560_000)], knobs={"host-pool-mib": 44_928})).kv_tokens
    assert found is not None
    assert found.best == 560_000


def test_a_boot_at_its_bound_shows_at_least_and_never_short() -> None:
    full = boot(kv_tokens=600_000, knobs={**boot().knobs, "host-pool-mib": 45_568})
    endpoint = declared(boots=[full])
    found = forecast(endpoint)
    assert verdict(endpoint, found) == "unknown"
    assert "600,000" in shown(found)
    assert "bound" in shown(found)
    without_margin = declared(boots=[full], contract={"margin": 0.0})
    assert verdict(without_margin, forecast(without_margin)) == "holds"


def test_a_boot_of_the_same_pool_outranks_the_law_in_the_pair_era() -> None:
    seen = boot(engine_version="1.2.0", kv_tokens=607_500, kv_gib="", knobs={"vram-kv-mib": 5120})
    found = forecast(declared("archon-pair", boots=[seen])).kv_tokens
    assert found is not None
    assert found.is_exact
    assert found.best == 607_500
    other = forecast(declared("archon-pair", boots=[seen], knobs={"vram-kv-mib": 5100}))
    assert other.kv_tokens is not None
    assert other.kv_tokens.best == pytest.approx(605_228, abs=1)
    assert "does not count" in shown(other)


def test_the_live_boot_of_the_same_shape_is_inside_the_range_of_the_law() -> None:
    found = forecast(declared("archon-pair", knobs={"vram-kv-mib": 3543, "vram-weights-mib": 26_071}))
    assert found.kv_tokens is not None
    assert found.kv_tokens.contains(386_904)
    assert found.kv_tokens.best == pytest.approx(387_194.5, abs=0.1)
    assert "386,904" in shown(found)


@pytest.mark.parametrize("printed", ["4.20 GiB", "", "many", "-1", "nan", "inf", "0"])
def test_a_printed_size_that_is_none_is_one_clear_error_or_not_needed(printed: str) -> None:
    endpoint = declared(boots=[boot(kv_gib=printed)])
    if printed == "":
        assert forecast(endpoint).kv_tokens is not None
        return
    with pytest.raises(DeclarationError) as err:
        forecast(endpoint)
    assert err.value.code == "boot-bad-value"


# ---------------------------------------------------------------- unknown is unknown


def test_without_a_manifest_nothing_is_claimed() -> None:
    found = ADAPTER.forecast(declared(), host(), None)
    assert found.kv_tokens is None
    assert found.host_need.ttm_floor_mib is None
    assert "manifest" in found.notes[0]


def test_at_another_number_of_ranks_the_law_is_not_known() -> None:
    found = forecast(declared(knobs={"tp": 4}), host(cards=[]))
    assert found.kv_tokens is None
    assert "measured at tp 2" in shown(found)
    assert len(found.cards) == 4


def test_an_unknown_host_is_neither_full_nor_empty() -> None:
    found = forecast(declared(), host(cards=[], ram_mib=None, ttm_pages_limit=None, ttm_target_mib=None))
    assert found.problems == ()
    assert [card.total_mib for card in found.cards] == [None, None]
    assert [card.ceiling_mib for card in found.cards] == [None, None]
    assert "no card is known" in shown(found)
    assert found.kv_tokens is not None


def test_a_pair_without_a_stated_pool_is_unknown() -> None:
    found = forecast(declared("archon-pair", without=("vram-kv-mib",)))
    assert found.kv_tokens is None
    assert "vram-kv-mib is not set" in shown(found)


def test_fewer_cards_than_ranks_is_a_problem_with_both_numbers() -> None:
    one = host(cards=[host().cards[0].model_dump()])
    found = [p for p in forecast(declared(), one).problems if p.code == "cards-too-few"]
    assert len(found) == 1
    assert "2" in found[0].message
    assert "1" in found[0].message


def test_a_rank_count_that_the_container_refuses_is_a_problem() -> None:
    assert "tp-unservable" in {p.code for p in forecast(declared(knobs={"tp": 6}), host(cards=[])).problems}


@pytest.mark.parametrize("missing", ["", "latest", "1", "v", "1.8.x"])
def test_without_a_version_no_law_applies(missing: str) -> None:
    with pytest.raises(DeclarationError) as err:
        forecast(declared(engine={"version": missing}))
    assert err.value.code == ("engine-version-invalid" if missing else "engine-version-missing")


# ---------------------------------------------------------------- limits


def test_a_pair_over_the_ceiling_is_a_problem_with_both_numbers() -> None:
    found = forecast(declared("archon-pair", knobs={"vram-weights-mib": 26_000}))
    over = [p for p in found.problems if p.code == "card-over-ceiling"]
    assert len(over) == 2
    assert "31,120" in over[0].message
    assert "30,969" in over[0].message
    assert "151" in over[0].message


def test_a_pair_inside_the_rounding_of_the_ceiling_is_said_and_not_judged() -> None:
    found = forecast(declared("archon-pair", knobs={"vram-weights-mib": 25_850}))
    assert found.problems == ()
    assert "may not fit" in shown(found)


def test_slots_and_window_under_the_contract_are_limits() -> None:
    found = forecast(declared(knobs={"max-num-seqs": 2, "max-model-len": 131_072}))
    assert (found.seqs_limit, found.seq_len_limit) == (2, 131_072)


def test_more_slots_than_promised_are_paid_for() -> None:
    found = forecast(declared("archon-pair", knobs={"max-num-seqs": 8}))
    assert found.kv_tokens is not None
    assert found.kv_tokens.best == pytest.approx(608_028 - 5 * 110 * 1024 / 7.3125, abs=1)


def test_a_ttm_target_under_the_floor_is_a_problem() -> None:
    found = forecast(declared(), host(ttm_target_mib=150_000))
    message = next(p.message for p in found.problems if p.code == "ttm-target-low")
    assert "150,200" in message
    assert "150,000" in message


def test_the_kernels_default_limit_is_said_to_be_under_the_floor() -> None:
    assert "125,988 MiB) is under the floor" in shown(forecast(declared()))
    assert "is under the floor" not in shown(forecast(declared(), host(ttm_pages_limit=52_428_800)))


def test_a_manifest_of_another_file_is_a_problem() -> None:
    found = forecast(declared(model={"bytes": 1, "sha256": "0" * 64}))
    assert [p.code for p in found.problems] == ["manifest-mismatch"] * 2


def test_a_window_longer_than_any_that_was_served_is_said() -> None:
    assert "262,144" in shown(forecast(declared(contract={"len": 300_000})))


@pytest.mark.parametrize(("seqs", "said"), [(3, "9 rows"), (4, "12 rows"), (8, "24 rows"), (9, "27 rows")])
def test_the_rows_of_the_lossy_wire_are_counted(seqs: int, said: str) -> None:
    text = shown(forecast(declared(contract={"seqs": seqs})))
    assert said in text
    assert ("no longer bit-exact" in text) == (seqs > 8)


def test_the_exact_wire_has_nothing_to_count() -> None:
    assert "rows" not in shown(forecast(declared(knobs={"tp-wire": "exact"})))


# ---------------------------------------------------------------- properties


@settings(max_examples=40, deadline=None)
@given(pool=st.integers(39_000, 45_000), more=st.integers(0, 6_000))
def test_more_host_pool_never_means_fewer_tokens(pool: int, more: int) -> None:
    less, larger = (forecast(declared(knobs={"host-pool-mib": mib})).kv_tokens for mib in (pool, pool + more))
    assert less is not None
    assert larger is not None
    assert larger.low >= less.low
    assert larger.best >= less.best
    assert larger.high >= less.high


@settings(max_examples=40, deadline=None)
@given(seqs=st.integers(1, 40), name=st.sampled_from(["archon", "archon-pair"]))
def test_more_sequences_never_mean_more_tokens(seqs: int, name: str) -> None:
    few, many = (forecast(declared(name, contract={"seqs": n})).kv_tokens for n in (seqs, seqs + 1))
    assert few is not None
    assert many is not None
    assert many.best <= few.best


@settings(max_examples=40, deadline=None)
@given(seqs=st.integers(1, 65_536), length=st.integers(16, 100_000_000), dtype=st.sampled_from(["fp8", "bf16"]))
def test_no_contract_however_absurd_breaks_a_forecast(seqs: int, length: int, dtype: str) -> None:
    for name in ("archon", "archon-pair"):
        endpoint = declared(name, contract={"seqs": seqs, "len": length, "kv_dtype": dtype})
        found = forecast(endpoint)
        assert found.kv_tokens is None or found.kv_tokens.low >= 0
        assert verdict(endpoint, found) in ("holds", "short", "unknown")


def test_the_model_is_not_looked_at_and_no_header_is_needed() -> None:
    assert ADAPTER.needs_model_header is False
    assert model().format == "manifest"
