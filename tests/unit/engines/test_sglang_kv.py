"""SGLang's pools against sizes that public boots print."""

from __future__ import annotations

import pytest

from archonctl.engines.sglang.kv import (
    Rates,
    element_bytes,
    in_one_pool,
    kv_share,
    pool_tokens,
    rates,
    static_bytes,
    swa_tokens,
    two_pools,
)
from archonctl.errors import DeclarationError
from archonctl.model.inline import describe

GIB = 1024**3


def test_heads_are_shared_out_and_replicated() -> None:
    geometry = describe({"layers": 94, "kv_heads": 4, "head_dim": 128}).geometry
    assert rates(geometry, tp=4).full == 94 * 2 * 128 * 2
    assert rates(geometry, tp=8) == rates(geometry, tp=4)
    assert rates(geometry, tp=4, dtype="torch.float8_e4m3fn").full == 94 * 2 * 128


def test_a_latent_row_is_whole_on_every_rank() -> None:
    """160.63 GB for 2,454,421 tokens of Kimi-K2.5 on 8 ranks."""
    geometry = describe(None, "moonshotai/Kimi-K2.5").geometry
    assert rates(geometry, tp=8).full == 61 * 576 * 2
    assert round(2_454_421 * rates(geometry, tp=8).full / GIB, 2) == 160.63


def test_an_indexer_is_counted_beside_the_latent() -> None:
    assert rates(describe(None, "deepseek-v3.2").geometry).indexer == 61 * 132


def test_two_pools_share_memory_at_a_ratio() -> None:
    """3.18 GB of Gemma 4 26B in fp8: 37,081 tokens in the full pool and 29,664 in the sliding one."""
    each = rates(describe(None, "gemma-4-26b").geometry, dtype="fp8")
    assert (each.full, each.sliding) == (10_240, 102_400)
    full, sliding = swa_tokens(3.183 * GIB, each)
    assert abs(full - 37_081) < 50
    assert sliding == int(full * 0.8)


def test_pools_come_in_whole_pages_and_never_below_zero() -> None:
    assert pool_tokens(1000, 10, page=64) == 64
    assert pool_tokens(-1, 10) == 0
    with pytest.raises(ValueError, match="keeps anything"):
        pool_tokens(100, 0)


def test_what_the_fraction_leaves() -> None:
    assert static_bytes(100, 60, 0.9) == pytest.approx(50)
    assert static_bytes(100, 5, 0.9) < 0
    assert kv_share(1.9) == pytest.approx(1.0)


def test_a_dtype_without_a_law_is_refused() -> None:
    with pytest.raises(DeclarationError, match="kv-dtype-unknown"):
        element_bytes("fp4_e2m1")


def test_a_draft_costs_as_much_as_its_layers_would_in_the_target() -> None:
    """pool_configurator.py: cell x (1 + draft layers / layers), in whole bytes."""
    geometry = describe({"layers": 61, "kv_heads": 8, "head_dim": 128}).geometry
    each = rates(geometry, draft_layers=1)
    assert each.token == int(61 * 4096 * (1 + 1 / 61))
    assert pool_tokens(10 * GIB, each.token) < pool_tokens(10 * GIB, rates(geometry).token)


def test_fp8_rows_beside_an_indexer_are_packed() -> None:
    """memory_pool.py: 656 bytes a row where the model has an indexer and the cache is fp8."""
    each = rates(describe(None, "deepseek-v3.2").geometry, dtype="fp8_e4m3")
    assert each.full == 61 * 656
    assert each.token == 61 * (656 + 132)


def test_without_a_full_layer_there_is_one_pool_and_no_ratio() -> None:
    local = Rates(0, 1000)
    assert swa_tokens(1_000_000, local) == (1000, 1000)
    assert swa_tokens(1_000_000, local, page=64) == (960, 960)


def test_states_are_taken_whole_or_as_many_as_are_asked_for() -> None:
    """handle_max_mamba_cache: int(rest x ratio / (1 + ratio) // one) x one, or max_mamba_cache_size x one."""
    rest, one = 19.0 * GIB, 77_000_000
    assert kv_share(rest, 0.9, one) == rest - int(rest * 0.9 / 1.9 // one) * one
    assert kv_share(rest, 0.9, one, 100) == rest - 100 * one
    assert kv_share(rest, 0.9) <= kv_share(rest, 0.9, one) < kv_share(rest, 0.9) + one


def test_a_hybrid_has_a_state_of_known_size_on_each_rank() -> None:
    geometry = describe(None, "Qwen/Qwen3-Next-80B-A3B-Instruct").geometry
    conv, ssm = 3 * (4096 + 2 * 2048) * 2, 32 * 128 * 128 * 4
    assert rates(geometry).state == 36 * (conv + ssm)
    assert rates(geometry, tp=2).state == 36 * (conv + ssm) // 2


@pytest.mark.parametrize(
    ("names", "version", "two"),
    [
        ("openai/gpt-oss-20b", "0.5.9", True),
        ("gemma4_text", "", True),
        ("gpt_oss", "0.5.4", False),
        ("gemma3_text", "0.5.9", False),
        ("mistral", "0.5.12.post1", False),
    ],
)
def test_few_models_have_a_pool_for_their_windows(names: str, version: str, two: bool) -> None:
    assert two_pools(names, version) is two


def test_windows_without_a_pool_of_their_own_are_kept_in_full() -> None:
    each = in_one_pool(rates(describe(None, "gemma-3-27b").geometry))
    assert (each.full, each.sliding) == (62 * 16 * 2 * 128 * 2, 0)
