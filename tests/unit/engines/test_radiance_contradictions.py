"""Where the published figures contradict each other, a forecast shows both and hides neither."""

from __future__ import annotations

import pytest
from radiance_cases import boot, declared, forecast, law, shown

from archonctl.engines.radiance.calibrate import exchange_rates
from archonctl.engines.radiance.cards import slab_notes


def test_free_on_the_card_and_above_the_floor_are_two_figures() -> None:
    text = shown(forecast(declared("archon-pair")))
    assert "458 MiB stay free" in text
    assert "249 are above the engine's own floor of 209.19" in text


def test_the_three_prices_of_a_token_are_all_shown() -> None:
    text = shown(forecast(declared()))
    for figure in ("7.3125", "7.92", "8.11", "14.89"):
        assert figure in text


def test_every_exchange_of_640_mib_is_a_method_of_its_own() -> None:
    found = forecast(declared())
    wins = {name: value.best - 556_348 for name, value in found.methods.items()}
    by = {key: next(v for name, v in wins.items() if key in name) for key in ("mean", "rate", "exchange", "law")}
    assert by["exchange"] == pytest.approx(44_000)
    assert by["rate"] == pytest.approx(80_809, abs=1)
    assert by["mean"] == pytest.approx(82_790, abs=1)
    assert by["law"] == pytest.approx(89_622, abs=1)
    assert found.kv_tokens is not None
    assert found.kv_tokens.low == min(value.low for value in found.methods.values())
    assert found.kv_tokens.high == max(value.high for value in found.methods.values())


def test_the_mean_of_the_boot_carries_the_rounding_of_its_gib() -> None:
    mean = next(value for name, value in forecast(declared()).methods.items() if "mean" in name)
    assert mean.low < mean.best < mean.high


def test_the_exact_boot_is_shown_beside_the_law_on_its_printed_size() -> None:
    methods = forecast(declared(knobs={"host-pool-mib": 44_928})).methods
    by_law = next(value for name, value in methods.items() if "4.20 GiB" in name)
    assert by_law.best == pytest.approx(556_047, abs=1)
    assert by_law.contains(556_348)
    assert methods["boot ledger"].best == 556_348


def test_both_sizes_of_the_file_are_shown() -> None:
    text = shown(forecast(declared()))
    assert "116,319.6 MiB" in text
    assert "116,322 MiB" in text


def test_the_straight_line_and_the_measurement_are_both_shown() -> None:
    (line,) = slab_notes(24_000)
    assert "measured 3,290 t/s" in line
    assert "3,853" in line  # printed as "about 3,850"
    assert "threshold" in line


def test_a_slab_between_two_measurements_claims_neither() -> None:
    (line,) = slab_notes(25_600)
    assert "3,290" in line
    assert "4,379" in line
    assert slab_notes(10_000) == slab_notes(30_000) == []


def test_the_superseded_rate_of_bf16_is_shown_beside_the_corrected_one() -> None:
    found = forecast(
        declared("archon-pair", knobs={"vram-kv-mib": 6912}, contract={"seqs": 2, "kv_dtype": "bf16", "margin": 0.0})
    )
    assert found.kv_tokens is not None
    assert found.kv_tokens.best == pytest.approx(462_904, abs=0.5)
    assert any(value.best == pytest.approx(437_187, abs=0.5) for value in found.methods.values())
    assert "14.625" in shown(found)
    assert "superseded" in shown(found)


def test_both_hand_ceilings_and_the_settle_lines_are_shown() -> None:
    text = shown(forecast(declared("archon-pair")))
    for figure in ("29,122", "29,120", "30,969", "30,964", "30,974"):
        assert figure in text


def test_both_figures_for_what_lies_outside_slab_and_pool_are_shown() -> None:
    text = shown(forecast(declared("archon-pair")))
    assert "1,710 MiB by hand" in text
    assert "678 held at settle" in text


def test_quoted_figures_are_scaled_for_another_dtype_and_say_so() -> None:
    bf16 = boot(kv_dtype="bf16", kv_tokens=290_000, kv_gib="4.20")
    found = forecast(declared(contract={"kv_dtype": "bf16"}, boots=[bf16]))
    assert any("scaled from fp8" in name for name in found.methods)
    assert found.kv_tokens is not None
    assert found.kv_tokens.best < 350_000


def test_the_boots_own_mean_is_trusted_first_and_the_law_last() -> None:
    names = list(exchange_rates(boot(), law(era="resolver"), law(era="resolver")))
    assert names[0].startswith("mean of that boot")
    assert names[-1].startswith("KV law")
    assert next(iter(exchange_rates(boot(kv_gib=""), law(), law()))).startswith("quoted rate")
