"""What each rank of a tensor-parallel engine holds of the weights."""

from __future__ import annotations

import pytest

from archonctl.engines.sharding import attention_share, padded_vocabulary
from archonctl.engines.vllm.memory import rank_weights
from archonctl.model.geometry import Geometry, Layer, ModelFacts, TensorBytes

DENSE = Geometry("llama", "l", tuple(Layer(i, "full", 2, 128, 128, 256, 256) for i in range(4)), 1024, 8, 32_000, 1)
LATENT = Geometry("deepseek_v3", "d", (Layer(0, "mla", 1, 576, 512, 576, 0),), 7168, 128, 129_280, 1)
WIDTHS = {"qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "q_lora_rank": 1536}


def facts(geometry: Geometry | None, metadata: dict[str, int | float | str | bool] | None = None) -> ModelFacts:
    parts = (TensorBytes("attention", "BF16", 1000, 1), TensorBytes("dense_ffn", "BF16", 4000, 1))
    return ModelFacts("/m", "safetensors", geometry, 5000, parts, 2, metadata or {})


def test_attention_divides_as_long_as_there_is_a_head_for_every_rank() -> None:
    assert [attention_share(facts(DENSE), tp) for tp in (1, 2)] == [1, 0.5]


def test_a_rank_holds_no_less_than_one_kv_head() -> None:
    queries, keys = 2 * 8 * 128 * 1024, 2 * 256 * 1024
    expected = (queries / 8 + keys / 2) / (queries + keys)
    assert attention_share(facts(DENSE), 8) == pytest.approx(expected)
    assert expected > 1 / 8


def test_projections_into_a_latent_are_whole_on_every_rank() -> None:
    down = 7168 * (576 + 1536)
    divided = 1536 * 128 * 192 + 512 * 128 * 256 + 128 * 128 * 7168
    assert attention_share(facts(LATENT, dict(WIDTHS)), 16) == pytest.approx((down + divided / 16) / (down + divided))
    assert attention_share(facts(LATENT), 16) == 1 / 16


def test_a_vocabulary_is_padded_to_64_rows() -> None:
    assert padded_vocabulary(DENSE) == 1
    odd = Geometry("x", "x", DENSE.layers, 1024, 8, 50_257, 1)
    assert padded_vocabulary(odd) == 50_304 / 50_257
    assert padded_vocabulary(None) == 1


@pytest.mark.parametrize("tp", [1, 2, 8])
def test_ranks_together_hold_all_of_it_and_what_is_replicated(tp: int) -> None:
    mine = rank_weights(facts(DENSE), tp, (4,), 2)
    assert mine is not None
    assert mine.best == pytest.approx(4000 / tp + 1000 * attention_share(facts(DENSE), tp))
    assert mine.best * tp >= 5000 - 1e-6
