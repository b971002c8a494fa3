"""What a header's figures make of an architecture: widths, windows, recurrent layers, and refusals.

The figures for each architecture were compared with the cache lines of llama.cpp b11434's own boot log.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

import archonctl.model
from archonctl.errors import ModelError
from archonctl.model.geometry import Geometry
from archonctl.model.gguf import read_gguf
from archonctl.model.gguf_laws import laws
from support.raw_gguf import BOOL, F32, LLAMA, STRING, U8, Value, array, pair, text, write_arch, write_model

ROWS = tomllib.loads(Path(archonctl.model.__file__).with_name("gguf_architectures.toml").read_text(encoding="utf-8"))


def geometry(folder: Path, arch: str, keys: dict[str, Value], *more: bytes) -> Geometry:
    return read_gguf(write_arch(folder / "m.gguf", arch, keys, *more)).require_geometry()


def kinds(shape: Geometry) -> str:
    """One letter a layer: f(ull), s(liding), m(la), r(ecurrent), n(one)."""
    return "".join(layer.attention[0] for layer in shape.layers)


def test_every_architecture_has_one_law_with_a_source() -> None:
    names = [name for row in ROWS["law"] for name in row["architectures"]]
    assert len(set(names)) == len(names) == len(laws())
    assert all(len(row["source"]) > 10 for row in ROWS["law"])


@pytest.mark.parametrize(
    "arch", ["llama", "qwen2", "qwen3", "qwen3moe", "phi3", "glm4", "granite", "mistral3", "qwen2moe"]
)
def test_plain_architectures_keep_full_rows_in_every_layer(tmp_path: Path, arch: str) -> None:
    shape = geometry(tmp_path, arch, {"attention.sliding_window": 512})
    assert kinds(shape) == "ffff"
    assert {(layer.k_width, layer.v_width, layer.window) for layer in shape.layers} == {(32, 32, 0)}
    assert (shape.heads, shape.hidden, shape.trained_context, shape.nextn_layers) == (4, 64, 4096, 0)


def test_head_sizes_in_the_header_come_before_the_quotient(tmp_path: Path) -> None:
    shape = geometry(tmp_path, "llama", {"attention.key_length": 128, "attention.value_length": 96})
    assert (shape.layers[0].k_width, shape.layers[0].v_width) == (256, 192)


def test_kv_heads_default_to_heads_and_may_differ_by_layer(tmp_path: Path) -> None:
    assert geometry(tmp_path, "openelm", {"attention.head_count_kv": [4, 2, 1, 0]}).layers[2].k_width == 16
    path = write_model(tmp_path / "n.gguf", {k: v for k, v in LLAMA.items() if not k.endswith("head_count_kv")})
    assert read_gguf(path).require_geometry().layers[0].kv_heads == 4


def test_a_layer_without_kv_heads_keeps_nothing(tmp_path: Path) -> None:
    shape = geometry(tmp_path, "deci", {"attention.head_count_kv": [2, 0, 2, 2]})
    assert kinds(shape) == "fnff"
    assert shape.layers[1].k_width == 0


@pytest.mark.parametrize(
    ("arch", "keys", "layers", "window"),
    [
        ("gemma3", {"attention.sliding_window": 1024}, "sssssfss", 1024),
        ("gemma3", {}, "ffffffff", 0),
        ("gemma3", {"attention.sliding_window": 0}, "ffffffff", 0),
        ("gemma3", {"attention.sliding_window": 64, "attention.sliding_window_pattern": 2}, "sfsfsfsf", 64),
        ("gemma3", {"attention.sliding_window": 64, "attention.sliding_window_pattern": 0}, "ssssssss", 64),
        ("gemma3", {"attention.sliding_window": 64, "attention.sliding_window_pattern": [True, False]}, "sfffffff", 64),
        ("gemma2", {}, "sfsfsfsf", 4096),
        ("gemma2", {"attention.sliding_window": 512}, "sfsfsfsf", 512),
        ("gpt-oss", {"attention.sliding_window": 128}, "sfsfsfsf", 128),
        ("olmo2", {"attention.sliding_window": 4096}, "sssfsssf", 4096),
        ("olmo2", {}, "ffffffff", 0),
        ("cohere2", {"attention.sliding_window": 4096}, "sssfsssf", 4096),
        ("cohere2moe", {"attention.sliding_window": 4096}, "fsssfsss", 4096),
        ("laguna", {"attention.sliding_window": 512}, "fsssfsss", 512),
        ("plamo3", {"attention.sliding_window": 2048}, "sssssssf", 2048),
        ("smallthinker", {"attention.sliding_window": 7}, "fsssfsss", 4096),
        ("smallthinker", {}, "ffffffff", 0),
        ("llama4", {}, "sssfsssf", 8192),
        ("llama4", {"attention.sliding_window": 100}, "sssfsssf", 8192),
        ("llama4", {"attention.sliding_window": 0}, "ffffffff", 0),
        ("exaone4", {"attention.sliding_window": 4096}, "ffffffff", 0),
        (
            "step35",
            {"attention.sliding_window": 512, "attention.sliding_window_pattern": [0, 1, 1, 1] * 2},
            "fsssfsss",
            512,
        ),
    ],
)
def test_windows_slide_where_llama_cpp_lets_them(
    tmp_path: Path, arch: str, keys: dict[str, Value], layers: str, window: int
) -> None:
    shape = geometry(tmp_path, arch, {"block_count": 8, **keys})
    assert kinds(shape) == layers
    assert {layer.window for layer in shape.layers} == ({0, window} if "f" in layers else {window})


def test_exaone4_slides_at_its_64_layers_only(tmp_path: Path) -> None:
    assert kinds(geometry(tmp_path, "exaone4", {"block_count": 64})) == "sssf" * 16


def test_sliding_layers_may_have_heads_of_their_own_size(tmp_path: Path) -> None:
    keys: dict[str, Value] = {
        "block_count": 6,
        "attention.sliding_window": 512,
        "attention.sliding_window_pattern": [True, True, False] * 2,
        "attention.key_length": 512,
        "attention.value_length": 512,
        "attention.key_length_swa": 256,
        "attention.value_length_swa": 128,
        "attention.shared_kv_layers": 2,
    }
    shape = geometry(tmp_path, "gemma4", keys)
    assert kinds(shape) == "ssfsnn"
    assert [(layer.k_width, layer.v_width) for layer in shape.layers[:4]] == [
        (512, 256),
        (512, 256),
        (1024, 1024),
        (512, 256),
    ]


def test_gemma3n_keeps_kv_in_its_first_twenty_layers(tmp_path: Path) -> None:
    shape = geometry(tmp_path, "gemma3n", {"block_count": 30, "attention.sliding_window": 512})
    assert kinds(shape) == "ssssf" * 4 + "n" * 10


MLA: dict[str, Value] = {
    "attention.head_count_kv": 1,
    "attention.key_length": 576,
    "attention.value_length": 512,
    "attention.key_length_mla": 192,
    "attention.value_length_mla": 128,
}


def test_mla_keeps_one_latent_row_and_no_values(tmp_path: Path) -> None:
    layer = geometry(tmp_path, "deepseek2", MLA).layers[0]
    assert (layer.attention, layer.k_width, layer.v_width, layer.head_dim_v) == ("mla", 576, 0, 512)


def test_an_old_deepseek2_without_mla_keys_keeps_full_rows(tmp_path: Path) -> None:
    keys = {key: value for key, value in MLA.items() if not key.endswith("_mla")}
    layer = geometry(tmp_path, "deepseek2", keys).layers[0]
    assert (layer.attention, layer.k_width, layer.v_width) == ("full", 576, 512)


SSM: dict[str, Value] = {
    "ssm.conv_kernel": 4,
    "ssm.inner_size": 4096,
    "ssm.state_size": 128,
    "ssm.time_step_rank": 32,
    "ssm.group_count": 16,
}


@pytest.mark.parametrize(
    ("keys", "layers"),
    [
        ({}, "rrrfrrrf"),
        ({"full_attention_interval": 2}, "rfrfrfrf"),
        ({"attention.recurrent_layers": [True, False] * 4}, "rfrfrfrf"),
        ({"nextn_predict_layers": 1}, "rrrfrrrf"),
    ],
)
def test_qwen3next_mixes_states_and_full_layers(tmp_path: Path, keys: dict[str, Value], layers: str) -> None:
    shape = geometry(tmp_path, "qwen3next", {"block_count": 8, **SSM, **keys})
    assert kinds(shape) == layers
    state = shape.recurrent
    assert state is not None
    assert state.conv_elements == 3 * (4096 + 2 * 16 * 128)
    assert state.ssm_elements == 128 * 4096
    assert (state.conv_kernel, state.groups, state.time_step_rank) == (4, 16, 32)
    assert shape.nextn_layers == keys.get("nextn_predict_layers", 0)


def test_layers_without_kv_heads_are_the_recurrent_ones_of_hybrids(tmp_path: Path) -> None:
    shape = geometry(tmp_path, "granitehybrid", {"attention.head_count_kv": [0, 2, 0, 2], **SSM})
    assert kinds(shape) == "rfrf"


def test_jamba_and_mamba_have_no_groups_whatever_the_header_says(tmp_path: Path) -> None:
    for arch, count in (("jamba", 2), ("mamba", 4)):
        shape = geometry(tmp_path, arch, {"attention.head_count_kv": [0, 2, 0, 2], **SSM})
        assert kinds(shape).count("r") == count
        assert shape.recurrent is not None
        assert shape.recurrent.conv_elements == 3 * 4096


def test_nemotron_h_has_layers_with_neither_kv_nor_state(tmp_path: Path) -> None:
    keys: dict[str, Value] = {"attention.head_count_kv": [0, 2, 0, 0], "feed_forward_length": [0, 0, 64, 0]}
    assert kinds(geometry(tmp_path, "nemotron_h", {**keys, **SSM})) == "rfnr"


def test_kimi_linear_has_latent_rows_and_kda_states(tmp_path: Path) -> None:
    keys: dict[str, Value] = {**MLA, "attention.head_count_kv": [0, 0, 0, 1], "ssm.conv_kernel": 4, "kda.head_dim": 128}
    shape = geometry(tmp_path, "kimi-linear", keys)
    assert kinds(shape) == "rrrm"
    assert shape.recurrent is not None
    assert (shape.recurrent.conv_elements, shape.recurrent.ssm_elements) == (3 * 3 * 4 * 128, 128 * 128 * 4)


def test_lfm2_slides_in_all_attention_layers_if_it_has_a_window(tmp_path: Path) -> None:
    keys: dict[str, Value] = {"attention.head_count_kv": [0, 2, 0, 2], "shortconv.l_cache": 3}
    assert kinds(geometry(tmp_path, "lfm2", keys)) == "rfrf"
    shape = geometry(tmp_path, "lfm2", {**keys, "attention.sliding_window": 256})
    assert kinds(shape) == "rsrs"
    assert shape.recurrent is not None
    assert (shape.recurrent.conv_elements, shape.recurrent.ssm_elements) == (64 * 2, 0)


def test_trailing_prediction_layers_are_counted_apart_unless_the_engine_gives_them_cells(tmp_path: Path) -> None:
    assert geometry(tmp_path, "glm4moe", {"nextn_predict_layers": 1}).nextn_layers == 1
    assert geometry(tmp_path, "glm4moe", {"nextn_predict_layers": 4}).nextn_layers == 0
    hybrid = geometry(
        tmp_path, "granitehybrid", {"attention.head_count_kv": [0, 2, 0, 2], "nextn_predict_layers": 1, **SSM}
    )
    assert (hybrid.nextn_layers, kinds(hybrid)) == (0, "rfrf")


def test_experts_and_vocabulary_are_counted(tmp_path: Path) -> None:
    keys: dict[str, Value] = {"expert_count": 64, "expert_used_count": [4, 8, 8, 8], "expert_shared_count": 2}
    shape = geometry(tmp_path, "qwen3moe", keys, pair("tokenizer.ggml.tokens", ["a", "b", "c"]))
    assert (shape.experts, shape.experts_used, shape.experts_shared, shape.vocab) == (64, 8, 2, 3)
    assert geometry(tmp_path, "llama", {"vocab_size": 320}).vocab == 320


@pytest.mark.parametrize("arch", ["deepseek4", "bert", "clip", "LLAMA", "llama ", "", "x" * 10_000, "qwen9\x1b[31m"])
def test_an_architecture_without_a_law_has_bytes_but_no_geometry(tmp_path: Path, arch: str) -> None:
    facts = read_gguf(write_arch(tmp_path / "m.gguf", arch, {}))
    assert (facts.geometry, facts.weight_bytes) == (None, 128)
    assert "no law for architecture" in facts.geometry_reason
    assert facts.geometry_reason.isprintable()
    assert len(facts.geometry_reason) < 200
    with pytest.raises(ModelError, match="no law") as caught:
        facts.require_geometry()
    assert caught.value.code == "model-architecture-unknown"


BAD: list[tuple[str, dict[str, Value], str]] = [
    ("llama", {"block_count": 0}, "block_count is 0"),
    ("llama", {"block_count": 10**9}, "block_count is 1,000,000,000; llama.cpp loads at most 512"),
    ("llama", {"block_count": 513}, "at most 512"),
    ("llama", {"block_count": -1}, "block_count is -1"),
    ("llama", {"block_count": 2.0}, "block_count is 2.0"),
    ("llama", {"block_count": "4"}, "block_count is '4'"),
    ("llama", {"block_count": True}, "block_count is True"),
    ("llama", {"block_count": [4]}, "the header has no block_count"),
    ("llama", {"nextn_predict_layers": 5}, "more than the 4 layers"),
    ("llama", {"context_length": 0}, "context_length is 0"),
    ("llama", {"embedding_length": 0}, "embedding_length is 0"),
    ("llama", {"embedding_length": 3}, "heads of 0"),
    ("llama", {"attention.head_count": 0}, "heads of 0"),
    ("llama", {"attention.head_count_kv": 0}, "no layer keeps any KV"),
    ("llama", {"attention.head_count_kv": -2}, "is -2"),
    ("llama", {"attention.head_count_kv": [2, 2, 2]}, "lists 3 layers, block_count says 4"),
    ("llama", {"attention.head_count_kv": [2, -2, 2, 2]}, "is -2"),
    ("llama", {"attention.head_count_kv": ["2"] * 4}, "no per-layer figures"),
    ("llama", {"attention.head_count_kv": 2**31 - 1, "attention.key_length": 2**31 - 1}, "rows of"),
    ("llama", {"attention.key_length": 2**40}, "not a whole number"),
    ("llama", {"expert_count": 2**63}, "not a whole number"),
    ("gpt-oss", {}, "the header has no attention.sliding_window"),
    ("gpt-oss", {"attention.sliding_window": 0}, "is 0, but"),
    ("gpt-oss", {"attention.sliding_window": 128, "attention.sliding_window_pattern": 1}, "no layer that slides"),
    ("gpt-oss", {"attention.sliding_window": 128, "attention.sliding_window_pattern": "x"}, "is 'x'"),
    ("gemma4", {"attention.sliding_window": 128}, "sliding_window_pattern is missing"),
    (
        "gemma4",
        {
            "attention.sliding_window": 128,
            "attention.sliding_window_pattern": [1, 0, 0, 0],
            "attention.shared_kv_layers": 9,
        },
        "only -5 of 4",
    ),
    ("qwen3next", {}, "has no ssm.conv_kernel"),
    ("qwen3next", {**SSM, "full_attention_interval": 0}, "full_attention_interval is 0"),
    ("qwen3next", {**SSM, "ssm.state_size": 0}, "ssm.state_size is 0"),
    ("qwen3next", {**SSM, "attention.recurrent_layers": [1, 1]}, "lists 2 layers"),
    ("lfm2", {"attention.head_count_kv": [0, 2, 0, 2], "shortconv.l_cache": 0}, "shortconv.l_cache is 0"),
]


@pytest.mark.parametrize(("arch", "keys", "said"), BAD)
def test_figures_that_make_no_model_are_refused(tmp_path: Path, arch: str, keys: dict[str, Value], said: str) -> None:
    with pytest.raises(ModelError) as caught:
        geometry(tmp_path, arch, keys)
    assert caught.value.code == "model-geometry-invalid"
    assert said in caught.value.message


@pytest.mark.parametrize("missing", ["block_count", "context_length", "embedding_length"])
def test_a_missing_figure_is_named(tmp_path: Path, missing: str) -> None:
    path = write_model(tmp_path / "m.gguf", {k: v for k, v in LLAMA.items() if not k.endswith(missing)})
    with pytest.raises(ModelError, match=f"the header has no {missing}"):
        read_gguf(path)


def test_per_layer_figures_of_other_number_types_are_read_or_refused_but_never_guessed(tmp_path: Path) -> None:
    keys = {k: v for k, v in LLAMA.items() if not k.endswith("head_count_kv")}
    key = "llama.attention.head_count_kv"
    path = tmp_path / "m.gguf"
    assert read_gguf(write_model(path, keys, array(key, U8, [2, 1]))).require_geometry().layers[1].kv_heads == 1
    with pytest.raises(ModelError, match="no per-layer figures"):
        read_gguf(write_model(path, keys, array(key, F32, [2.0, 1.0])))
    with pytest.raises(ModelError, match="600 elements"):
        read_gguf(write_model(path, keys, array(key, BOOL, [True] * 600)))


def test_a_giant_string_where_a_number_belongs_is_refused(tmp_path: Path) -> None:
    keys = {k: v for k, v in LLAMA.items() if not k.endswith("block_count")}
    giant = text("llama.block_count") + STRING.to_bytes(4, "little") + text("9" * 70_000)
    with pytest.raises(ModelError) as caught:
        read_gguf(write_model(tmp_path / "m.gguf", keys, giant))
    assert caught.value.code == "model-geometry-invalid"
