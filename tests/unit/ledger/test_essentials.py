"""The twelve figures that are asked of every ledger: bytes and tokens, sums, and what is not known."""

from __future__ import annotations

import pytest

from archonctl.ledger import read_ledger
from archonctl.ledger.as_json import ledger_json
from archonctl.ledger.essentials import ESSENTIALS, essentials
from archonctl.ledger.grammar import all_grammars

GIB = 1 << 30


def told(*lines: str, engine: str | None = None) -> dict[str, tuple[float, float, float] | None]:
    found = essentials(read_ledger(lines, engine))
    return {
        e.name: (e.reading.value.low, e.reading.value.best, e.reading.value.high) if e.reading else None for e in found
    }


def test_keys_and_values_of_sglang_are_one_cache_in_bytes_with_both_roundings() -> None:
    line = "KV Cache is allocated. #tokens: 1000, K size: 1.50 GB, V size: 2.00 GB"
    assert told(line)["kv_bytes"] == pytest.approx((3.49 * GIB, 3.5 * GIB, 3.51 * GIB))


def test_a_figure_that_is_not_there_is_null_and_one_that_never_is_is_absent() -> None:
    found = told("GPU KV cache size: 9,216 tokens")
    assert found["kv_tokens"] == (9216, 9216, 9216)
    assert found["weights_bytes"] is None
    assert "slab_bytes" not in found


def test_memory_that_is_below_zero_stays_below_zero() -> None:
    assert told("Available KV cache memory: -24.42 GiB")["available_bytes"] == pytest.approx(
        (-24.425 * GIB, -24.42 * GIB, -24.415 * GIB)
    )


def test_layers_and_slots_of_llama_server_are_counts() -> None:
    found = told(
        "load_tensors: offloaded 18/33 layers to GPU",
        "initializing, n_slots = 4, n_ctx_slot = 8192, kv_unified = 'true'",
    )
    assert [found[name] and found[name][1] for name in ("layers_on_device", "layers", "slots", "slot_tokens")] == [
        18, 33, 4, 8192,
    ]  # fmt: skip


def test_nothing_is_asked_of_an_unknown_engine() -> None:
    assert told("nothing of interest") == {}
    assert ledger_json(read_ledger(["nothing"]))["essentials"] == {}


@pytest.mark.parametrize("name", ESSENTIALS)
def test_some_engine_can_tell_each_of_them(name: str) -> None:
    assert any(name in grammar.essentials for grammar in all_grammars())


def test_a_cache_of_2024_has_as_many_cells_as_its_context_but_not_a_state() -> None:
    head = "llama_new_context_with_model: n_ctx      = 8192"
    kv = "llama_new_context_with_model: KV self size  = 1024.00 MiB, K ({t}):  512.00 MiB, V ({t}):  512.00 MiB"
    assert told(head, kv.format(t="f16"))["kv_tokens"] == (8192, 8192, 8192)
    assert told(head, kv.format(t="f32"))["kv_tokens"] is None
