"""The table of element types, tensor sizes and the class that a name stands for."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from hypothesis import given
from hypothesis import strategies as st

import archonctl.model
from archonctl.errors import ModelError
from archonctl.model.gguf_header import TensorInfo
from archonctl.model.gguf_types import element_types, tensor_class, tensor_size

TABLE = tomllib.loads(Path(archonctl.model.__file__).with_name("gguf_types.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("kind", GGMLQuantizationType, ids=lambda kind: kind.name)
def test_sizes_equal_those_of_the_reference_package(kind: GGMLQuantizationType) -> None:
    mine = element_types()[int(kind)]
    # gguf up to 0.19 counts two floats in a q8_1 block, ggml-common.h has two halves (for activations, not files)
    expected = (32, 36) if kind.name == "Q8_1" else GGML_QUANT_SIZES[kind]
    assert (mine.block, mine.bytes) == expected
    assert mine.name.lower() == kind.name.lower()


def test_a_type_newer_than_the_reference_package_has_the_size_of_its_struct() -> None:
    two_bit = element_types()[42]
    assert (two_bit.name, two_bit.block, two_bit.bytes) == ("q2_0", 64, 2 + 64 // 4)


def test_rows_are_unique_sourced_and_plausible() -> None:
    rows = TABLE["types"]
    assert len({row["id"] for row in rows}) == len({row["name"] for row in rows}) == len(rows)
    for row in rows:
        assert row["source"]
        assert 0.1 < row["bytes"] / row["block"] <= 8
    assert {row["id"] for row in rows}.isdisjoint(TABLE["removed"])
    assert {row["id"] for row in rows} | set(TABLE["removed"]) == set(range(43))


@given(st.sampled_from(sorted(element_types())), st.integers(0, 9), st.lists(st.integers(0, 7), max_size=3))
def test_bytes_are_blocks_times_block_size(type_id: int, blocks: int, rest: list[int]) -> None:
    kind = element_types()[type_id]
    expected = blocks * kind.bytes
    for dim in rest:
        expected *= dim
    assert tensor_size(TensorInfo("t", type_id, (blocks * kind.block, *rest), 0), "x") == (kind.name, expected)


@pytest.mark.parametrize("dims", [(2**63, 1), (2**32, 2**31, 2), (2**62, 2, 1, 1), (2**64 - 1, 2**64 - 1, 2**64 - 1)])
def test_a_shape_past_63_bits_is_refused(dims: tuple[int, ...]) -> None:
    with pytest.raises(ModelError, match="the limit is 2") as caught:
        tensor_size(TensorInfo("t", 0, dims, 0), "x")
    assert caught.value.code == "model-header-hostile"


def test_a_row_that_is_no_whole_number_of_blocks_is_refused() -> None:
    with pytest.raises(ModelError, match="rows of 33 values; q8_0 stores whole blocks of 32"):
        tensor_size(TensorInfo("t", 8, (33, 2), 0), "x")


@pytest.mark.parametrize(
    ("type_id", "said"), [(31, "no longer reads"), (43, "ids up to 42"), (2**32 - 1, "ids up to 42")]
)
def test_an_element_type_outside_the_table_is_named(type_id: int, said: str) -> None:
    with pytest.raises(ModelError, match=said) as caught:
        tensor_size(TensorInfo("blk.0.attn_q.weight", type_id, (32,), 0), "x")
    assert caught.value.code == "model-tensor-type-unknown"
    assert str(type_id) in caught.value.message


@pytest.mark.parametrize(
    ("name", "cls"),
    [
        ("token_embd.weight", "embedding"),
        ("per_layer_token_embd.weight", "embedding"),
        ("output.weight", "output"),
        ("output_norm.weight", "output"),
        ("blk.0.attn_q.weight", "attention"),
        ("blk.61.attn_kv_a_mqa.weight", "attention"),
        ("blk.3.attn_sinks.weight", "attention"),
        ("blk.3.post_attention_norm.weight", "attention"),
        ("blk.3.ffn_down.weight", "dense_ffn"),
        ("blk.3.ffn_norm.weight", "dense_ffn"),
        ("blk.12.ffn_gate_exps.weight", "routed_experts"),
        ("blk.12.ffn_gate_up_exps.weight", "routed_experts"),
        ("blk.12.ffn_down_exps.bias", "routed_experts"),
        ("blk.12.ffn_up_chexps.weight", "routed_experts"),
        ("blk.12.ffn_up.7.weight", "routed_experts"),
        ("blk.12.ffn_up_shexp.weight", "shared_experts"),
        ("blk.12.ffn_gate_inp_shexp.weight", "shared_experts"),
        ("blk.12.ffn_gate_inp.weight", "other"),
        ("blk.12.exp_probs_b.bias", "other"),
        ("blk.1.ssm_conv1d.weight", "recurrent"),
        ("blk.1.ssm_a", "recurrent"),
        ("blk.1.shortconv.conv.weight", "recurrent"),
        ("rope_freqs.weight", "other"),
        ("blk.9.nextn.eh_proj.weight", "other"),
        ("v.blk.0.attn_q.weight", "other"),
        ("something new", "other"),
        ("", "other"),
    ],
)
def test_a_name_tells_the_class(name: str, cls: str) -> None:
    assert tensor_class(name) == cls


@given(st.text())
def test_any_name_has_a_class(name: str) -> None:
    assert tensor_class(name)
