"""Headers that lie, and vocabularies that nobody wants: bounded in time and memory, one clear error each."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from struct import pack

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from archonctl.errors import ModelError
from archonctl.model import gguf_cursor
from archonctl.model.files import opened
from archonctl.model.gguf import read_gguf
from archonctl.model.gguf_header import Header, read_header
from support.raw_gguf import ARRAY, LLAMA, STRING, U8, U32, U64, Value, array, document, pair, tensor, text

TENSOR = tensor("blk.0.attn_q.weight", (8, 4))
GOOD = [pair(key, value) for key, value in LLAMA.items()]


def header_of(path: Path) -> Header:
    with opened(path) as blob:
        return read_header(blob)


def refusal(path: Path, data: bytes) -> ModelError:
    path.write_bytes(data)
    tracemalloc.start()
    try:
        with pytest.raises(ModelError) as caught:
            read_gguf(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8 * 2**20
    assert caught.value.message.isprintable()
    assert caught.value.where == str(path)
    return caught.value


def claim(key: str, kind: int, count: int, payload: bytes = b"") -> bytes:
    """An array that claims ``count`` elements of ``kind``."""
    return text(key) + pack("<IIQ", ARRAY, kind, count) + payload


HUGE = 2**63
HOSTILE = {
    "2^63 pairs": (document(GOOD, [TENSOR], pair_count=HUGE), f"{HUGE:,} key-value pairs"),
    "2^64-1 tensors": (document(GOOD, [TENSOR], tensor_count=2**64 - 1), f"{2**64 - 1:,} tensors"),
    "a million tensors": (document(GOOD, [TENSOR], tensor_count=10**6), "1,000,000 tensors"),
    "a key of 2^63 bytes": (document([pack("<Q", HUGE) + b"x"], [TENSOR]), f"a key claims {HUGE:,} bytes"),
    "a key of 70,000 bytes": (document([pair("k" * 70_000, 1)], [TENSOR]), "a key is 70,000 bytes long"),
    "an empty key": (document([pair("", 1)], [TENSOR]), "a key is 0 bytes long"),
    "a key that is no UTF-8": (document([pair(b"\xff\xfe\x1b[31m", 1)], [TENSOR]), "is not UTF-8"),
    "a key twice": (document([*GOOD, GOOD[1]], [TENSOR]), "'llama.block_count' stands twice"),
    "a giant string twice": (document([pair("a", "x" * 70_000)] * 2, [TENSOR]), "'a' stands twice"),
    "an array twice": (document([pair("a", [1])] * 2, [TENSOR]), "'a' stands twice"),
    "a string of 2^63 bytes": (document([text("k") + pack("<IQ", STRING, HUGE)], [TENSOR]), f"claims {HUGE:,} bytes"),
    "an unknown value type": (document([text("k") + pack("<II", 13, 0)], [TENSOR]), "value type 13"),
    "value type 2^32-1": (document([text("k") + pack("<I", 2**32 - 1)], [TENSOR]), "value type 4294967295"),
    "2^63 strings": (document([claim("k", STRING, HUGE)], [TENSOR]), f"claims {HUGE:,} strings"),
    "2^64-1 numbers": (document([claim("k", U64, 2**64 - 1)], [TENSOR]), f"claims {2**64 - 1:,} elements"),
    "2^29 bytes": (document([claim("k", U8, 2**29)], [TENSOR]), "claims 536,870,912 elements"),
    "an array of arrays": (document([claim("k", ARRAY, 1, claim("", U8, 1))], [TENSOR]), "holds arrays"),
    "arrays a thousand deep": (
        document([claim("k", ARRAY, 1, pack("<IQ", ARRAY, 1) * 1000)], [TENSOR]),
        "holds arrays",
    ),
    "an array of unknown elements": (document([claim("k", 99, 1)], [TENSOR]), "element type 99"),
    "a huge string in a vocabulary": (
        document([claim("k", STRING, 2, text("a") + pack("<Q", HUGE))], [TENSOR]),
        f"{HUGE:,}",
    ),
    "alignment 0": (document([*GOOD, pair("general.alignment", 0)], [TENSOR]), "general.alignment is 0"),
    "alignment 24": (document([*GOOD, pair("general.alignment", 24)], [TENSOR]), "general.alignment is 24"),
    "alignment -32": (document([*GOOD, pair("general.alignment", -32)], [TENSOR]), "general.alignment is -32"),
    "alignment in words": (document([*GOOD, pair("general.alignment", "32")], [TENSOR]), "general.alignment is '32'"),
    "alignment yes": (document([*GOOD, pair("general.alignment", True)], [TENSOR]), "general.alignment is True"),
    "five dimensions": (document(GOOD, [tensor("t", (1, 1, 1, 1, 1))]), "5 dimensions"),
    "2^32-1 dimensions": (document(GOOD, [text("t") + pack("<I", 2**32 - 1)]), "4,294,967,295 dimensions"),
    "dimensions past 63 bits": (document(GOOD, [tensor("t", (2**40, 2**40))]), "the limit is 2^63 - 1"),
    "a tensor name of 64 bytes": (document(GOOD, [tensor("t" * 64, (1,))]), "64 bytes long"),
    "a tensor name of 2^63 bytes": (document(GOOD, [pack("<Q", HUGE) + bytes(100)]), f"{HUGE:,} bytes long"),
    "a tensor twice": (document(GOOD, [TENSOR, TENSOR]), "'blk.0.attn_q.weight' stands twice"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_header_that_cannot_be_true_is_refused(tmp_path: Path, case: str) -> None:
    data, said = HOSTILE[case]
    error = refusal(tmp_path / "m.gguf", data)
    assert error.code == "model-header-hostile"
    assert said in error.message


TRUNCATED = {
    "more pairs than bytes": document(GOOD, [TENSOR], pair_count=60_000),
    "more tensors than bytes": document(GOOD, [TENSOR], tensor_count=60_000),
    "more strings than bytes": document([claim("k", STRING, 2**20)], [TENSOR]),
    "more numbers than bytes": document([claim("k", U32, 2**20)], [TENSOR]),
    "a string past the end": document([text("k") + pack("<IQ", STRING, 10**6)], [TENSOR]),
    "a key past the end": document([pack("<Q", 10**6)], [TENSOR]),
    "a vocabulary past the end": document([claim("k", STRING, 2, text("a") + pack("<Q", 10**6))], [TENSOR]),
    "an alignment past the end": document([*GOOD, pair("general.alignment", 2**31)], [TENSOR]),
    "one pair too many": document(GOOD, [], pair_count=len(GOOD) + 1, data_bytes=0),
}


@pytest.mark.parametrize("case", TRUNCATED)
def test_a_header_that_runs_past_the_file_is_truncated(tmp_path: Path, case: str) -> None:
    error = refusal(tmp_path / "m.gguf", TRUNCATED[case])
    assert error.code in ("model-truncated", "model-header-hostile")
    if error.code == "model-truncated":
        assert f"{len(TRUNCATED[case]):,}" in error.message


@pytest.mark.parametrize(
    ("version", "said"),
    [(0, "version 0"), (1, "version 1"), (4, "version 4"), (0x03000000, "big-endian GGUF (version 3)")],
)
def test_other_versions_and_byte_orders_are_named(tmp_path: Path, version: int, said: str) -> None:
    error = refusal(tmp_path / "m.gguf", document(GOOD, [TENSOR], version=version))
    assert error.code == "model-version-unsupported"
    assert said in error.message


def test_version_2_is_read_as_version_3(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(document(GOOD, [TENSOR], version=2))
    assert read_gguf(path).require_geometry().layers[0].k_width == 32


def test_a_header_without_end_stops_at_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gguf_cursor, "MAX_HEADER_BYTES", 3 * 2**20)
    path = tmp_path / "m.gguf"
    pairs = [*GOOD, *(pair(f"k{i}", "x" * 60_000) for i in range(100))]
    path.write_bytes(document(pairs, [TENSOR]))
    with pytest.raises(ModelError, match="the limit is 3,145,728") as caught:
        read_gguf(path)
    assert caught.value.code == "model-header-hostile"


def test_long_strings_are_passed_over_and_short_ones_kept_up_to_a_budget(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    strings: dict[str, Value] = {f"s{i}": "x" * 65_536 for i in range(200)}
    path.write_bytes(document([*GOOD, *(pair(k, v) for k, v in strings.items()), pair("long", "y" * 70_000)], [TENSOR]))
    kept = header_of(path).scalars
    assert "long" not in kept
    assert sum(len(v) for v in kept.values() if isinstance(v, str)) <= gguf_cursor.MAX_KEPT_STRINGS_BYTES
    assert len(kept["s0"]) == 65_536  # type: ignore[arg-type]


def test_values_that_json_lacks_become_text(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(document([*GOOD, pair("a", float("nan")), pair("b", float("-inf")), pair("c", 1.5)], [TENSOR]))
    kept = header_of(path).scalars
    assert (kept["a"], kept["b"], kept["c"]) == ("nan", "-inf", 1.5)


def test_bytes_that_are_no_text_do_not_hurt_in_a_value(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(document([*GOOD, text("general.name") + pack("<I", STRING) + text(b"a\xffb")], [TENSOR]))
    assert read_gguf(path).require_geometry().name == "a\ufffdb"


def test_short_arrays_are_kept_and_long_ones_counted(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    more = [array("short", U32, range(512)), array("long", U32, range(513)), pair("flags", [True, False])]
    path.write_bytes(document([*GOOD, *more], [TENSOR]))
    header = header_of(path)
    assert header.arrays["short"] == tuple(range(512))
    assert header.arrays["flags"] == (1, 0)
    assert "long" not in header.arrays
    assert header.array_lengths == {"short": 512, "long": 513, "flags": 2}


def test_a_vocabulary_costs_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    words = [f"word{i}" for i in range(150_000)]
    scores = array("tokenizer.ggml.token_type", U32, [1] * len(words))
    path.write_bytes(document([*GOOD, pair("tokenizer.ggml.tokens", words), scores], [TENSOR]))
    del words, scores
    read_gguf(path)
    tracemalloc.start()
    try:
        facts = read_gguf(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert facts.require_geometry().vocab == 150_000
    assert peak < 3 * 2**20


LENGTHS = st.one_of(st.integers(0, 20), st.integers(60, 300), st.sampled_from([135, 136, 255, 256, 65_536, 2 * 2**20]))


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(
    lengths=st.lists(LENGTHS, max_size=40), repeat=st.sampled_from([1, 200]), fill=st.sampled_from([b"\0", b"\7", b"x"])
)
def test_strings_of_any_length_are_stepped_over_exactly(
    tmp_path: Path, lengths: list[int], repeat: int, fill: bytes
) -> None:
    # the large ones are there once only, or the file would be of gibibytes
    every = [n for n in lengths if n < 1000] * repeat + [n for n in lengths if n >= 1000]
    strings = b"".join(pack("<Q", n) + fill * n for n in every)
    path = tmp_path / "m.gguf"
    path.write_bytes(document([claim("k", STRING, len(every), strings), *GOOD, pair("after", 42)], [TENSOR]))
    header = header_of(path)
    assert header.array_lengths["k"] == len(every)
    assert header.scalars["after"] == 42
    assert header.tensors[0].name == "blk.0.attn_q.weight"


def test_thousands_of_tensors_are_listed_across_windows(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    tensors = [
        tensor(f"blk.{i % 500}.some_rather_long_name_of_a_tensor.{i}", (8,), offset=32 * i) for i in range(30_000)
    ]
    path.write_bytes(document(GOOD, tensors, data_bytes=32 * len(tensors)))
    facts = read_gguf(path)
    assert (facts.tensors, facts.weight_bytes) == (30_000, 30_000 * 32)
