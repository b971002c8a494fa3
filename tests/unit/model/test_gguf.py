"""Facts of whole files: equal to what the reference reader shows, one file or many parts, cut short anywhere."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from struct import pack
from typing import Any

import pytest
from gguf import GGUFReader
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from archonctl.errors import ArchonError, ModelError
from archonctl.model.as_json import facts_json
from archonctl.model.demo_gguf import write_tiny_gguf
from archonctl.model.gguf import read_gguf
from support.raw_gguf import LLAMA, Value, document, pair, tensor, write_model
from support.tiny_gguf import ARCHITECTURES


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("small")
    return {arch: write_tiny_gguf(folder / f"{arch}.gguf", arch) for arch in ARCHITECTURES}


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_bytes_and_keys_equal_those_of_the_reference_reader(small: dict[str, Path], arch: str) -> None:
    facts, reference = read_gguf(small[arch]), GGUFReader(small[arch])
    assert facts.weight_bytes == sum(int(t.n_bytes) for t in reference.tensors)
    assert facts.tensors == len(reference.tensors)
    by_type: Counter[str] = Counter()
    for t in reference.tensors:
        by_type[t.tensor_type.name.lower()] += int(t.n_bytes)
    mine: Counter[str] = Counter()
    for part in facts.tensor_bytes:
        mine[part.dtype.lower()] += part.bytes
    assert mine == by_type
    scalars = {
        name: f.contents()
        for name, f in reference.fields.items()
        if not name.startswith("GGUF.") and not isinstance(f.contents(), list)
    }
    assert facts.metadata == scalars


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_geometry_follows_from_the_keys_that_the_reference_reader_shows(small: dict[str, Path], arch: str) -> None:
    reference = GGUFReader(small[arch])

    def key(name: str) -> int:
        return int(reference.fields[f"{arch}.{name}"].contents())

    shape = read_gguf(small[arch]).require_geometry()
    assert shape.architecture == arch
    assert shape.name == f"tiny-random-{arch}"
    assert (shape.hidden, shape.heads) == (key("embedding_length"), key("attention.head_count"))
    assert shape.trained_context == key("context_length") == 262_144
    assert shape.vocab == len(reference.fields["tokenizer.ggml.tokens"].contents()) == 320
    expected = {
        "gemma3": ["sliding"] * 5 + ["full"],
        "gpt-oss": ["sliding", "full"] * 2,
        "deepseek2": ["mla"] * 4,
        "qwen3next": ["recurrent"] * 3 + ["full"],
    }
    assert [layer.attention for layer in shape.layers] == expected.get(arch, ["full"] * key("block_count"))
    for layer in shape.layers:
        if layer.attention != "recurrent":
            assert layer.k_width == key("attention.head_count_kv") * key("attention.key_length")
            v_width = key("attention.head_count_kv") * key("attention.value_length")
            assert layer.v_width == (0 if layer.attention == "mla" else v_width)
        assert layer.window == (key("attention.sliding_window") if layer.attention == "sliding" else 0)
    moe = arch in ("qwen3moe", "deepseek2", "gpt-oss", "qwen3next")
    assert (shape.experts, shape.experts_used) == ((4, 2) if moe else (0, 0))
    assert shape.experts_shared == (1 if arch in ("deepseek2", "qwen3next") else 0)


def test_bytes_are_told_by_class(small: dict[str, Path]) -> None:
    by_class: Counter[str] = Counter()
    for part in read_gguf(small["qwen3next"]).tensor_bytes:
        assert part.dtype == "f32"
        by_class[part.cls] += part.bytes
    assert by_class["embedding"] == 64 * 320 * 4
    assert by_class["routed_experts"] == 4 * 3 * (64 * 64 * 4) * 4
    assert by_class["shared_experts"] == 4 * (3 * 64 * 64 + 64) * 4
    assert by_class["other"] == 4 * 64 * 4 * 4
    assert by_class["recurrent"] == 3 * (4 * 256 + 4 + 4 + 64 * 8 + 32 + 128 * 64) * 4


def test_facts_are_ready_for_json(small: dict[str, Path]) -> None:
    value = facts_json(read_gguf(small["gemma3"]))
    assert value["parts"] == 1
    assert value["geometry"]["layers"][5]["attention"] == "full"


def test_a_whole_file_needs_no_byte_less_and_no_padding_at_its_end(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    whole = document(
        [pair(k, v) for k, v in LLAMA.items()], [tensor("a", (3,)), tensor("b", (5,), offset=32)], data_bytes=52
    )
    path.write_bytes(whole)
    assert read_gguf(path).weight_bytes == 32
    path.write_bytes(whole[:-1])
    with pytest.raises(ModelError) as caught:
        read_gguf(path)
    assert caught.value.code == "model-truncated"
    assert f"{len(whole):,}" in caught.value.message
    assert f"{len(whole) - 1:,}" in caught.value.message
    assert "(1 missing)" in caught.value.message


def test_a_file_cut_anywhere_is_truncated_and_nothing_else(tmp_path: Path) -> None:
    more = [pair("tokenizer.ggml.tokens", ["a", "bb"]), pair("x.y", [1, 2, 3]), pair("general.name", "n")]
    whole = write_model(tmp_path / "whole.gguf", LLAMA, *more).read_bytes()
    path = tmp_path / "cut.gguf"
    for length in range(4, len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(ModelError) as caught:
            read_gguf(path)
        assert caught.value.code == "model-truncated", length


def test_a_sparse_file_of_hundreds_of_gibibytes_is_read_from_its_header(tmp_path: Path) -> None:
    path = write_model(tmp_path / "m.gguf", LLAMA)
    data = document(
        [pair(k, v) for k, v in LLAMA.items()], [tensor("blk.0.ffn_up_exps.weight", (2**20, 2**19), 8)], data_bytes=0
    )
    size = 2**39 // 32 * 34
    with path.open("wb") as file:
        file.write(data)
        file.truncate(len(data) + size)
    facts = read_gguf(path)
    assert (facts.weight_bytes, facts.file_bytes) == (size, len(data) + size)
    assert facts.tensor_bytes[0].dtype == "q8_0"


def test_a_file_without_tensors_is_no_model(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(document([pair(k, v) for k, v in LLAMA.items()], []))
    with pytest.raises(ModelError) as caught:
        read_gguf(path)
    assert caught.value.code == "model-no-weights"


def test_tensors_out_of_place_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    for offset in (0, 31, 64, 2**63):
        path.write_bytes(
            document([pair(k, v) for k, v in LLAMA.items()], [tensor("a", (8,)), tensor("b", (8,), offset=offset)])
        )
        with pytest.raises(ModelError, match="expected at 32") as caught:
            read_gguf(path)
        assert caught.value.code == "model-header-hostile"


def test_alignment_moves_the_data(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    pairs = [pair(k, v) for k, v in LLAMA.items()] + [pair("general.alignment", 4096)]
    tensors = [tensor("a", (8,)), tensor("b", (8,), offset=4096)]
    whole = document(pairs, tensors, data_bytes=4096 + 32, alignment=4096)
    path.write_bytes(whole)
    assert read_gguf(path).weight_bytes == 64
    path.write_bytes(whole[:-1])
    with pytest.raises(ModelError, match="reaches at least"):
        read_gguf(path)


def split(folder: Path, count: int = 3, **wrong: int) -> list[Path]:
    """A model in ``count`` parts; ``wrong`` replaces figures in the first part (total, first_no) or later ones (no)."""
    paths = []
    for i in range(count):
        path = folder / f"m-{i + 1:05d}-of-{count:05d}.gguf"
        keys: dict[str, Value] = dict(LLAMA) if i == 0 else {}
        keys["split.no"] = wrong.get("no", i) if i else wrong.get("first_no", 0)
        keys["split.count"] = count
        keys["split.tensors.count"] = wrong.get("total", count)
        name = "blk.0.attn_q.weight" if "same" in wrong else f"blk.{i}.attn_q.weight"
        path.write_bytes(document([pair(k, v) for k, v in keys.items()], [tensor(name, (8, 4))]))
        paths.append(path)
    return paths


def test_all_parts_of_a_split_model_are_summed(tmp_path: Path) -> None:
    paths = split(tmp_path)
    facts = read_gguf(paths[0])
    assert (facts.parts, facts.tensors, facts.weight_bytes) == (3, 3, 3 * 128)
    assert facts.file_bytes == sum(path.stat().st_size for path in paths)
    assert facts.require_geometry().architecture == "llama"


def test_a_missing_part_is_named(tmp_path: Path) -> None:
    paths = split(tmp_path)
    paths[1].unlink()
    with pytest.raises(ModelError, match=r"part 2 of 3 is not there: m-00002-of-00003\.gguf") as caught:
        read_gguf(paths[0])
    assert caught.value.code == "model-split-missing"


def test_a_damaged_part_keeps_its_own_error(tmp_path: Path) -> None:
    paths = split(tmp_path)
    paths[2].write_bytes(paths[2].read_bytes()[:-1])
    with pytest.raises(ModelError) as caught:
        read_gguf(paths[0])
    assert (caught.value.code, caught.value.where) == ("model-truncated", str(paths[2]))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"total": 4}, "list 3 tensors together, the first says 4"),
        ({"no": 2}, "says that it is part 3, its name says 2"),
        ({"first_no": 1}, "must be called"),
        ({"first_no": 2**31}, "split.no is"),
    ],
)
def test_parts_that_disagree_are_refused(tmp_path: Path, wrong: dict[str, int], said: str) -> None:
    with pytest.raises(ModelError) as caught:
        read_gguf(split(tmp_path, **wrong)[0])
    assert caught.value.code == "model-split-invalid"
    assert said in caught.value.message


def test_a_tensor_in_two_parts_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="is in an earlier part too"):
        read_gguf(split(tmp_path, same=1)[0])


def test_a_later_part_points_to_the_first(tmp_path: Path) -> None:
    paths = split(tmp_path)
    with pytest.raises(ModelError, match="part 2 of 3") as caught:
        read_gguf(paths[1])
    assert str(paths[0]) in caught.value.hint


def test_a_renamed_first_part_is_told_its_name(tmp_path: Path) -> None:
    renamed = split(tmp_path)[0].rename(tmp_path / "model.gguf")
    with pytest.raises(ModelError, match=r"NAME-00001-of-00003\.gguf"):
        read_gguf(renamed)


def test_a_claim_of_billions_of_parts_costs_nothing(tmp_path: Path) -> None:
    keys: dict[str, Value] = {**LLAMA, "split.no": 0, "split.count": 2**31 - 1, "split.tensors.count": 1}
    with pytest.raises(ModelError) as caught:
        read_gguf(write_model(tmp_path / "m-00001-of-00003.gguf", keys))
    assert caught.value.code == "model-split-invalid"


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_the_same_arguments_write_the_same_bytes(small: dict[str, Path], tmp_path: Path, arch: str) -> None:
    again = write_tiny_gguf(tmp_path / "again.gguf", arch)
    assert again.read_bytes() == small[arch].read_bytes()
    other = write_tiny_gguf(tmp_path / "other.gguf", arch, seed=1)
    assert other.read_bytes() != small[arch].read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["again.gguf", "other.gguf"]


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_random_weights_are_finite_and_small(small: dict[str, Path], arch: str) -> None:
    for t in GGUFReader(small[arch]).tensors:
        rows = t.data
        if t.name in ("token_embd.weight", "output.weight"):
            silent = [token for token in range(len(rows)) if not 0x20 <= token < 0x7F]
            assert not rows[silent].any(), f"{t.name} lets the model answer with what is no printable ASCII"
            rows = rows[0x20:0x7F]
        assert bool((abs(rows) <= 1.0).all()), t.name
        assert bool((abs(rows) >= 2.0**-7).all()), t.name


def test_the_real_geometry_of_llama3_8b_fits_in_ten_mebibytes(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    write_tiny_gguf(path, "llama", layers=32, heads=8, kv_heads=8, head_dim=128, hidden=16, ff=16, ctx=131_072)
    facts = read_gguf(path)
    assert sum(layer.k_width + layer.v_width for layer in facts.require_geometry().layers) * 2 == 128 * 1024
    assert facts.file_bytes < 10 * 2**20


@pytest.mark.parametrize(
    ("arch", "options", "said"),
    [
        ("gpt2", {}, "is not one of"),
        ("llama", {"layers": 0}, "layers must be at least 1, got 0"),
        ("llama", {"ctx": -1}, "ctx must be at least 1"),
        ("llama", {"heads": 3}, "multiple of kv_heads"),
        ("qwen2", {"hidden": 64}, "needs hidden = heads x head_dim = 128, got 64"),
    ],
)
def test_a_model_that_cannot_be_written_leaves_nothing_behind(
    tmp_path: Path, arch: str, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        write_tiny_gguf(tmp_path / "m.gguf", arch, **options)
    assert not list(tmp_path.iterdir())


def test_an_unwritable_place_keeps_the_old_file(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").mkdir()
    with pytest.raises(OSError, match="directory"):
        write_tiny_gguf(tmp_path / "m.gguf", "llama")
    assert [path.name for path in tmp_path.iterdir()] == ["m.gguf"]


FUZZ = settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@FUZZ
@given(
    arch=st.sampled_from(ARCHITECTURES),
    patches=st.lists(
        st.tuples(
            st.integers(0, 11_000),
            st.one_of(
                st.binary(min_size=1, max_size=9),
                st.sampled_from([b"\xff" * 8, b"\x00" * 8, pack("<Q", 2**63), pack("<Q", 2**31), pack("<I", 9)]),
            ),
        ),
        min_size=1,
        max_size=6,
    ),
    cut=st.one_of(st.none(), st.integers(0, 12_000)),
)
def test_a_mutated_file_gives_facts_or_one_clear_error(
    small: dict[str, Path], tmp_path: Path, arch: str, patches: list[tuple[int, bytes]], cut: int | None
) -> None:
    data = bytearray(small[arch].read_bytes())
    for place, new in patches:
        data[place : place + len(new)] = new
    path = tmp_path / "fuzzed.gguf"
    path.write_bytes(data[:cut])
    error: ArchonError | None = None
    try:
        facts = read_gguf(path)
    except ArchonError as err:
        error = err
    if error is None:
        assert facts.weight_bytes <= facts.file_bytes
    else:
        assert error.code.startswith("model-")
        assert error.message.isprintable()
        assert len(error.message) < 500
