"""Hugging Face folders: bytes by class and dtype from headers alone, and every lie in a header refused by its name."""

from __future__ import annotations

import contextlib
import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from archonctl.errors import ModelError
from archonctl.model.hf_folder import INDEX
from archonctl.model.inspect import inspect_model
from archonctl.model.safetensors import MAX_HEADER_BYTES, hf_tensor_class, read_safetensors
from support.raw_safetensors import BYTES, llama_config, llama_tensors, write_folder, write_raw, write_safetensors


def code(path: Path) -> str:
    with pytest.raises(ModelError) as caught:
        inspect_model(path)
    assert "\n" not in caught.value.message
    return caught.value.code


def tensor(begin: object, end: object, dtype: object = "U8", shape: object = None) -> dict[str, object]:
    size = [end - begin] if isinstance(begin, int) and isinstance(end, int) else []
    return {"dtype": dtype, "shape": size if shape is None else shape, "data_offsets": [begin, end]}


@pytest.mark.parametrize("files", [1, 4])
def test_llama_3_8b_comes_out_to_the_byte(tmp_path: Path, files: int) -> None:
    facts = inspect_model(write_folder(tmp_path / "m", llama_config(), llama_tensors(), files))
    assert (facts.format, facts.parts, facts.tensors) == ("safetensors", files, 291)
    assert facts.weight_bytes == 2 * 8_030_261_248
    by_class = {part.cls: part.bytes for part in facts.tensor_bytes}
    assert by_class["embedding"] == by_class["output"] == 2 * 128_256 * 4096
    assert by_class["attention"] == 32 * 2 * 4096 * (2 * 4096 + 2 * 1024)
    assert by_class["dense_ffn"] == 32 * 3 * 2 * 4096 * 14_336
    assert {part.dtype for part in facts.tensor_bytes} == {"BF16"}
    geometry = facts.require_geometry()
    assert [(each.kv_heads, each.head_dim_k) for each in geometry.layers] == [(8, 128)] * 32
    assert facts.metadata is not None
    assert facts.metadata["intermediate_size"] == 14_336


@pytest.mark.parametrize(
    ("name", "cls"),
    [
        ("model.layers.3.mlp.experts.17.down_proj.weight", "routed_experts"),
        ("model.layers.3.mlp.experts.gate_up_proj_blocks", "routed_experts"),
        ("model.layers.3.block_sparse_moe.experts.1.w1.weight", "routed_experts"),
        ("model.layers.3.mlp.shared_experts.up_proj.weight", "shared_experts"),
        ("model.layers.3.mlp.shared_expert.up_proj.weight_scale_inv", "shared_experts"),
        ("model.layers.3.mlp.gate.weight", "other"),
        ("model.layers.3.mlp.gate_proj.qweight", "dense_ffn"),
        ("model.layers.3.self_attn.kv_a_proj_with_mqa.weight", "attention"),
        ("model.layers.3.self_attn.q_norm.weight", "other"),
        ("model.layers.3.linear_attn.in_proj_qkvz.weight", "recurrent"),
        ("backbone.layers.3.mixer.A_log", "recurrent"),
        ("model.language_model.embed_tokens.weight", "embedding"),
        ("visual.blocks.1.attn.qkv.weight", "other"),
        ("transformer.wte.weight", "embedding"),
        ("lm_head.weight", "output"),
        ("something.else", "other"),
        ("", "other"),
    ],
)
def test_a_tensor_is_classed_by_its_name(name: str, cls: str) -> None:
    assert hf_tensor_class(name) == cls


def test_quantised_weights_are_counted_as_they_lie(tmp_path: Path) -> None:
    config = llama_config(num_hidden_layers=1, quantization_config={"quant_method": "awq", "bits": 4})
    facts = inspect_model(
        write_folder(
            tmp_path / "m",
            config,
            {
                "model.layers.0.mlp.up_proj.qweight": ("I32", (4096, 1792)),
                "model.layers.0.mlp.up_proj.scales": ("F16", (32, 14336)),
            },
        )
    )
    assert {(part.cls, part.dtype): part.bytes for part in facts.tensor_bytes} == {
        ("dense_ffn", "INT4"): 4096 * 1792 * 4,
        ("dense_ffn", "F16"): 32 * 14336 * 2,
    }
    assert facts.metadata is not None
    assert facts.metadata["quantization_config.quant_method"] == "awq"


def test_a_folder_without_config_still_has_weights(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "model.safetensors", {"lm_head.weight": ("BF16", (4, 4))})
    facts = inspect_model(tmp_path)
    assert (facts.weight_bytes, facts.geometry) == (32, None)
    assert "config.json" in facts.geometry_reason


def test_a_config_alone_tells_the_geometry(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(llama_config()))
    facts = inspect_model(tmp_path)
    assert (facts.weight_bytes, facts.tensors) == (0, 0)
    assert facts.geometry is not None


def test_a_model_without_a_law_has_weights_and_a_reason(tmp_path: Path) -> None:
    facts = inspect_model(write_folder(tmp_path / "m", llama_config(model_type="nobody"), {"x": ("U8", (4,))}))
    assert facts.geometry is None
    assert "nobody" in facts.geometry_reason


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m", llama_config(), llama_tensors(2), 3)
    (folder / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(ModelError, match="model-00002-of-00003") as caught:
        inspect_model(folder)
    assert caught.value.code == "model-split-missing"
    (folder / INDEX).unlink()  # the names of the files still say that there are three
    assert code(folder) == "model-split-missing"


def test_an_index_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m", llama_config(), {"a": ("U8", (4,))})
    for said, expected in [
        ({"weight_map": {"b": "model.safetensors"}}, "model-split-invalid"),
        ({"weight_map": {"a": "../model.safetensors"}}, "model-header-hostile"),
        ({"weight_map": {"a": 7}}, "model-header-hostile"),
        ({"weight_map": {}}, "model-header-hostile"),
        ([], "model-header-hostile"),
    ]:
        (folder / INDEX).write_text(json.dumps(said))
        assert code(folder) == expected


def test_one_tensor_in_two_files_is_refused_unless_an_index_chooses(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m", llama_config(), {"a": ("U8", (4,))})
    write_safetensors(folder / "consolidated.safetensors", {"a": ("U8", (4,))})
    assert inspect_model(folder).weight_bytes == 4  # Mistral's second copy
    write_safetensors(folder / "other.safetensors", {"a": ("U8", (8,))})
    assert code(folder) == "model-split-invalid"
    (folder / INDEX).write_text(json.dumps({"weight_map": {"a": "other.safetensors"}}))
    assert inspect_model(folder).weight_bytes == 8


@pytest.mark.parametrize("text", ["", "[]", "{", '{"a": 1, "a": 2}', "[" * 200_000, "\udcff"])
def test_a_config_that_cannot_be_read_is_named(tmp_path: Path, text: str) -> None:
    folder = write_folder(tmp_path / "m", {}, {"a": ("U8", (4,))})
    (folder / "config.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    assert code(folder) == "model-config-invalid"


@pytest.mark.parametrize(
    ("header", "data_bytes", "expected"),
    [
        ({"a": tensor(0, 4), "b": tensor(2, 6)}, 6, "model-header-hostile"),
        ({"a": tensor(0, 4), "b": tensor(5, 6)}, 6, "model-header-hostile"),
        ({"a": tensor(4, 0, shape=[4])}, 4, "model-header-hostile"),
        ({"a": tensor(-4, 0, shape=[4])}, 4, "model-header-hostile"),
        ({"a": tensor(0, 4, shape=[-2, -2])}, 4, "model-header-hostile"),
        ({"a": tensor(0, 4, shape=[5])}, 4, "model-header-hostile"),
        ({"a": tensor(0, 4, shape=[1 << 55] * 60)}, 4, "model-header-hostile"),
        ({"a": tensor(0, 4.0, shape=[4])}, 4, "model-header-hostile"),
        ({"a": tensor(False, 4, shape=[4])}, 4, "model-header-hostile"),
        ({"a": {"dtype": "U8", "shape": [4], "data_offsets": [0]}}, 4, "model-header-hostile"),
        ({"a": tensor(0, 4, dtype=["U8"])}, 4, "model-header-hostile"),
        ({"a": 5}, 4, "model-header-hostile"),
        ({"a": tensor(0, 4, dtype="Q9")}, 4, "model-tensor-type-unknown"),
        ({"a": tensor(0, 4)}, 5, "model-header-hostile"),
        ({"a": tensor(0, 4)}, 3, "model-truncated"),
        ({}, 0, "model-no-weights"),
    ],
)
def test_a_header_that_lies_is_refused(tmp_path: Path, header: object, data_bytes: int, expected: str) -> None:
    write_raw(tmp_path / "model.safetensors", json.dumps(header).encode(), data_bytes)
    assert code(tmp_path) == expected


@pytest.mark.parametrize(
    ("raw", "length", "expected"),
    [
        (b'{"a": {}, "a": {}}', None, "model-header-hostile"),
        (b"[" * 500_000, None, "model-header-hostile"),
        (b'{"a": ' + b"9" * 5000 + b"}", None, "model-header-hostile"),
        (b"\xff{}", None, "model-header-hostile"),
        (b"[]", None, "model-header-hostile"),
        (b"{}", MAX_HEADER_BYTES + 1, "model-header-hostile"),
        (b"{}", 2**64 - 1, "model-header-hostile"),
        (b"{}", 3, "model-truncated"),
    ],
)
def test_hostile_bytes_are_refused(tmp_path: Path, raw: bytes, length: int | None, expected: str) -> None:
    write_raw(tmp_path / "model.safetensors", raw, 0, length)
    assert code(tmp_path) == expected


def test_types_under_a_byte_are_packed(tmp_path: Path) -> None:
    header = {"a": {"dtype": "F4", "shape": [3, 2], "data_offsets": [0, 3]}}
    assert read_safetensors(write_raw(tmp_path / "x", json.dumps(header).encode(), 3)).tensors[0].end == 3


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(["U8", "BF16"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["dtype", "shape", "data_offsets", "a", "__metadata__"]), inner, max_size=4)
    ),
    max_leaves=12,
)


@settings(deadline=None)
@given(header=json_values, data_bytes=st.integers(0, 64))
def test_any_json_gives_facts_or_one_error(header: object, data_bytes: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        write_raw(Path(folder) / "model.safetensors", json.dumps(header).encode(), data_bytes)
        try:
            facts = inspect_model(folder)
        except ModelError:
            return
    assert facts.weight_bytes == data_bytes


@settings(deadline=None)
@given(cut=st.integers(0, 400), flipped=st.integers(0, 400), to=st.integers(0, 255))
def test_a_damaged_file_gives_facts_or_one_error(cut: int, flipped: int, to: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = write_safetensors(Path(folder) / "model.safetensors", {"a": ("U8", (64,)), "b": ("F32", (4, 4))})
        raw = bytearray(path.read_bytes())
        raw[flipped % len(raw)] = to
        path.write_bytes(raw[: len(raw) - cut])
        try:
            facts = inspect_model(folder)
        except ModelError:
            return
        assert facts.weight_bytes == 128


@settings(deadline=None)
@given(config=st.dictionaries(st.sampled_from(list(llama_config(layer_types=1, head_dim=1))), json_values))
def test_any_config_gives_facts_or_one_error(config: dict[str, object]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        write_folder(Path(folder), {**llama_config(), **config}, {"a": ("U8", (4,))})
        with contextlib.suppress(ModelError):
            assert inspect_model(folder).weight_bytes == 4


NAMES = (
    "model.embed_tokens.weight",
    "lm_head.weight",
    "model.layers.{}.self_attn.q_proj.weight",
    "model.layers.{}.mlp.experts.7.w1.weight_scale_inv",
    "model.layers.{}.linear_attn.A_log",
    "visual.blocks.{}.norm1.bias",
    "x{}",
)
DRAWN = st.tuples(st.sampled_from(NAMES), st.sampled_from(sorted(BYTES)), st.integers(0, 9), st.integers(1, 999))


@settings(deadline=None)
@given(st.lists(DRAWN, min_size=1, max_size=30), st.sampled_from(["", "fp8", "awq", "gptq", "mxfp4", "bitsandbytes"]))
def test_the_classes_add_up_to_the_file(drawn: list[tuple[str, str, int, int]], method: str) -> None:
    tensors = {name.format(layer): (dtype, (size,)) for name, dtype, layer, size in drawn}
    said = {"quantization_config": {"quant_method": method, "bits": 4}} if method else {}
    with tempfile.TemporaryDirectory() as folder:
        path = write_folder(Path(folder), llama_config(**said), tensors) / "model.safetensors"
        facts, size = inspect_model(folder), path.stat().st_size
        header = 8 + int.from_bytes(path.read_bytes()[:8], "little")
    assert sum(part.bytes for part in facts.tensor_bytes) == facts.weight_bytes == size - header
    assert sum(part.tensors for part in facts.tensor_bytes) == facts.tensors == len(tensors)
