"""Quantised checkpoints: the method as the config says it, and every byte in its class under the type it stands for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archonctl.model.as_json import facts_json
from archonctl.model.geometry import Quantization
from archonctl.model.hf_quant import quantization_of, stored_as
from archonctl.model.inspect import inspect_model
from support.raw_safetensors import Tensor, llama_config, write_safetensors

COMPRESSED = {"quant_method": "compressed-tensors", "format": "pack-quantized"}


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, Quantization("fp8", 8, 128)),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, Quantization("awq", 4, 128, packed="INT4")),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, Quantization("gptq", 8, packed="INT8")),
        ({"quant_method": "mxfp4"}, Quantization("mxfp4", 4, 32, packed="MXFP4")),
        (
            {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"},
            Quantization("bitsandbytes", 4, packed="NF4"),
        ),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, Quantization("bitsandbytes", 8, packed="INT8")),
        (
            {"quant_method": "modelopt", "quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8", "group_size": 16},
            Quantization("modelopt", 4, 16, "fp8", "NVFP4"),
        ),
        ({"quant_method": "modelopt", "quantization": {"quant_algo": "FP8"}}, Quantization("modelopt", 8)),
        (
            COMPRESSED | {"config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "int", "group_size": 32}}}},
            Quantization("compressed-tensors", 4, 32, packed="INT4"),
        ),
        (
            {
                "quant_method": "compressed-tensors",
                "format": "nvfp4-pack-quantized",
                "config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "float", "group_size": 16}}},
                "kv_cache_scheme": {"type": "float", "num_bits": 8},
            },
            Quantization("compressed-tensors", 4, 16, "fp8", "NVFP4"),
        ),
        (
            {"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp4"}}},
            Quantization("quark", 4, packed="MXFP4"),
        ),
        ({"bits": 4}, Quantization("unknown", 4)),
    ],
)
def test_the_method_is_read_as_the_config_says_it(said: dict[str, Any], expected: Quantization) -> None:
    assert quantization_of({"quantization_config": said}) == expected


def test_a_checkpoint_without_a_word_of_it_is_not_quantised() -> None:
    assert quantization_of({}) is None
    assert quantization_of({"quantization_config": None}) is None
    assert quantization_of({"quantization_config": {}}, {"producer": {}}) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda each: st.lists(each, max_size=3) | st.dictionaries(st.text(max_size=8), each, max_size=3),
    max_leaves=6,
)
METHODS = st.sampled_from(["fp8", "awq", "compressed-tensors", "bitsandbytes", "modelopt", "quark", "mxfp4"])


@given(
    METHODS,
    st.dictionaries(
        st.sampled_from(["bits", "config_groups", "format", "quantization", "group_size", "load_in_4bit"]), JSON
    ),
)
def test_any_config_is_read_or_passed_over(method: str, noise: dict[str, object]) -> None:
    found = quantization_of({"quantization_config": {"quant_method": method, **noise}})
    assert found is not None
    assert stored_as("x.weight", "BF16", found) == "BF16"


def facts_of(
    folder: Path, quantization: dict[str, Any] | None, tensors: dict[str, Tensor]
) -> dict[tuple[str, str], int]:
    folder.mkdir(exist_ok=True)
    config = llama_config(num_hidden_layers=1) | ({"quantization_config": quantization} if quantization else {})
    (folder / "config.json").write_text(json.dumps(config))
    write_safetensors(folder / "model.safetensors", tensors)
    return {(part.cls, part.dtype): part.bytes for part in inspect_model(folder).tensor_bytes}


LAYER = "model.layers.0."


@pytest.mark.parametrize(
    ("said", "tensors", "expected"),
    [
        (
            {"quant_method": "fp8", "weight_block_size": [128, 128]},
            {
                f"{LAYER}mlp.experts.3.up_proj.weight": ("F8_E4M3", (128, 256)),
                f"{LAYER}mlp.experts.3.up_proj.weight_scale_inv": ("F32", (1, 2)),
            },
            {("routed_experts", "F8_E4M3"): 32768, ("routed_experts", "F32"): 8},
        ),
        (
            {"quant_method": "gptq", "bits": 4},
            {
                f"{LAYER}self_attn.q_proj.qweight": ("I32", (16, 128)),
                f"{LAYER}self_attn.q_proj.qzeros": ("I32", (1, 16)),
                f"{LAYER}self_attn.q_proj.g_idx": ("I32", (128,)),
            },
            {("attention", "INT4"): 16 * 128 * 4 + 64, ("attention", "I32"): 512},
        ),
        (
            {"quant_method": "mxfp4"},
            {
                f"{LAYER}mlp.experts.gate_up_proj_blocks": ("U8", (4, 64, 2, 16)),
                f"{LAYER}mlp.experts.gate_up_proj_scales": ("U8", (4, 64, 2)),
            },
            {("routed_experts", "MXFP4"): 8192, ("routed_experts", "U8"): 512},
        ),
        (
            {"quant_method": "modelopt", "quant_algo": "NVFP4"},
            {
                f"{LAYER}mlp.down_proj.weight": ("U8", (64, 32)),
                f"{LAYER}mlp.down_proj.weight_scale": ("F8_E4M3", (64, 4)),
                "lm_head.weight": ("BF16", (8, 8)),
            },
            {("dense_ffn", "NVFP4"): 2048, ("dense_ffn", "F8_E4M3"): 256, ("output", "BF16"): 128},
        ),
        (
            {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"},
            {
                f"{LAYER}mlp.up_proj.weight": ("U8", (2048, 1)),
                f"{LAYER}mlp.up_proj.weight.absmax": ("U8", (64,)),
                f"{LAYER}mlp.up_proj.weight.quant_state.bitsandbytes__nf4": ("U8", (90,)),
            },
            {("dense_ffn", "NF4"): 2048, ("dense_ffn", "U8"): 154},
        ),
        (
            COMPRESSED | {"config_groups": {"g": {"weights": {"num_bits": 4, "type": "int"}}}},
            {
                f"{LAYER}mlp.up_proj.weight_packed": ("I32", (64, 8)),
                f"{LAYER}mlp.up_proj.weight_shape": ("I32", (2,)),
            },
            {("dense_ffn", "INT4"): 2048, ("dense_ffn", "I32"): 8},
        ),
    ],
)
def test_bytes_are_by_class_and_by_the_type_they_stand_for(
    tmp_path: Path, said: dict[str, Any], tensors: dict[str, Tensor], expected: dict[tuple[str, str], int]
) -> None:
    found = facts_of(tmp_path / "m", said, tensors)
    assert found == expected


def test_modelopt_says_it_in_a_file_of_its_own(tmp_path: Path) -> None:
    folder = tmp_path / "m"
    folder.mkdir()
    said = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"}}
    (folder / "hf_quant_config.json").write_text(json.dumps(said))
    found = facts_of(folder, None, {f"{LAYER}mlp.up_proj.weight": ("U8", (16, 16))})
    assert found == {("dense_ffn", "NVFP4"): 256}
    shown = facts_json(inspect_model(folder))["quantization"]
    assert shown == {"method": "modelopt", "bits": 4, "group_size": 16, "kv_cache": "fp8"}


def test_a_byte_tensor_of_a_checkpoint_that_is_not_quantised_stays_what_it_is(tmp_path: Path) -> None:
    assert facts_of(tmp_path / "m", None, {"lm_head.weight": ("U8", (4, 4))}) == {("output", "U8"): 16}
