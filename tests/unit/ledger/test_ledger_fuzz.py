"""Whatever a log or a case file holds: no crash, no hang, bounded memory, one answer whichever way it is fed."""

from __future__ import annotations

import io
import json
import re
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from archonctl.ledger import LedgerReader, read_ledger
from archonctl.ledger.as_json import check_json, ledger_json
from archonctl.ledger.check import check_cases
from archonctl.ledger.clean import clean
from archonctl.ledger.grammar import ENGINES, all_grammars
from archonctl.ledger.reader import DEEP_BYTES
from archonctl.ledger.refusal import refusal

EXAMPLES = sorted({row.example for found in all_grammars() for row in found.rows})
PREFIXES = [
    "",
    "(EngineCore_DP0 pid=1) INFO 01-01 00:00:00 [x.py:1] ",
    "[2026-01-01 00:00:00 TP0] ",
    "0.00.001.457 I ",
    "I[0] ",
    "svc-1  | ",
    "\x1b[1;36m",
    '{"message": "',
    'time=2026-01-01T00:00:00Z level=INFO source=x.go:1 msg="',
    "[" * 50,
    "2026-01-01T00:00:00.000000000Z stderr F ",
    "<30>Sep 11 00:42:50 host engine[7]: ",
    "2026-01-01 00:00:00.1 | INFO     | a.b:c:3 - ",
    "INFO:a.b:",
    "pod-a-1 engine INFO [",
    "Mon 2026-09-11 00:42:50 CEST host engine[1]: ",
]


@st.composite
def mutated_lines(draw: st.DrawFn) -> str:
    """A real line, cut, doubled, with characters changed, inside some carrier."""
    line = draw(st.sampled_from(PREFIXES)) + draw(st.sampled_from(EXAMPLES))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(line)))
        how = draw(st.sampled_from(("cut", "insert", "digits", "double", "drop")))
        if how == "cut":
            line = line[:at]
        elif how == "insert":
            line = line[:at] + draw(st.text(max_size=8)) + line[at:]
        elif how == "digits":
            line = line[:at] + str(draw(st.integers(-(10**40), 10**40))) + line[at:]
        elif how == "double":
            line += line
        else:
            line = line[:at] + line[at + 3 :]
    return line


@given(st.lists(mutated_lines(), max_size=30), st.sampled_from([None, *ENGINES]))
@settings(deadline=None, max_examples=200)
def test_mutated_lines_are_read_or_left_and_never_crash(lines: list[str], engine: str | None) -> None:
    reader = LedgerReader(engine)
    for line in lines:
        reader.feed(line)
    ledger = reader.result()
    json.dumps(ledger_json(ledger), allow_nan=False)
    assert all(reading.value.low <= reading.value.best <= reading.value.high for reading in ledger.figures.values())
    assert all(len(reading.text) <= 400 for reading in ledger.figures.values())
    refusal(ledger)
    reader.detected()
    assert reader.result() == ledger


@given(st.lists(mutated_lines().map(lambda t: t.replace("\r", "").replace("\n", "")), max_size=20))
@settings(deadline=None, max_examples=100)
def test_blocks_and_lines_come_to_the_same(lines: list[str]) -> None:
    reader = LedgerReader()
    for line in lines:
        reader.feed(line)
    assert read_ledger(io.BytesIO("\n".join(lines).encode() + b"\n" * bool(lines))) == reader.result()


@pytest.mark.parametrize("odd", [".", "1.2.3", "9" * 40, "-", "0.", "\u0663", ""])
def test_a_number_that_is_none_is_nobodys_line(odd: str) -> None:
    for engine in (None, *ENGINES):
        reader = LedgerReader(engine)
        for line in EXAMPLES:
            for place in re.finditer(r"\d+(?:\.\d+)?", line):
                reader.feed(line[: place.start()] + odd + line[place.end() :])
        json.dumps(ledger_json(reader.result()), allow_nan=False)


@given(st.binary(max_size=5000))
@settings(deadline=None)
def test_random_bytes_are_noise(data: bytes) -> None:
    ledger = read_ledger(io.BytesIO(data))
    assert not ledger.figures
    assert ledger.lines_read == data.count(b"\n") + (bool(data) and not data.endswith(b"\n"))


@given(st.text(max_size=2000))
@settings(deadline=None)
def test_any_text_is_cleaned(text: str) -> None:
    message = clean(text)
    assert len(message.text) <= max(len(text), 1) + 1


def test_deeply_nested_and_hostile_carriers_end() -> None:
    hostile = [
        '{"msg":' * 5000 + "}",
        "[" * 100_000,
        "(" * 100_000,
        "a=" * 50_000 + "msg=",
        'x="' + '\\"' * 50_000,
        " | " * 30_000,
        "INFO " * 20_000,
        "1" * 1_000_000,
        "To serve at least one request with the model's max seq len (" * 2000,
        "KV Cache is allocated. #tokens: " + "9" * 10_000 + ", K size: 1 GB, V size: 1 GB",
        "GPU KV cache size: " + ",".join("1" * 50_000) + " tokens",
    ]
    for engine in (None, "vllm", "sglang", "llamacpp"):
        ledger = read_ledger(hostile, engine)
        assert all(reading.value.best < 1e30 for reading in ledger.figures.values())


def test_memory_stays_flat_while_a_log_goes_on() -> None:
    lines = [example.encode() for example in EXAMPLES if len(example) < 2000]
    block = b"\n".join(lines) + b"\nnoise without end\n"
    reader = LedgerReader()
    for _ in range(20):
        reader.feed_block(block)
    tracemalloc.start()
    for _ in range(100):
        reader.feed_block(block)
    grown, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert grown < 2 << 20
    assert len(reader.result().remarks) < 2000


class Endless(io.RawIOBase):
    """A stream of one line without end, as large as asked for."""

    def __init__(self, size: int) -> None:
        self.left = size

    def read(self, size: int = -1, /) -> bytes:
        part = min(size, self.left)
        self.left -= part
        return b"x" * part


def test_a_line_without_end_is_bounded() -> None:
    tracemalloc.start()
    ledger = read_ledger(Endless(DEEP_BYTES * 4))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert ledger.lines_read == 1
    assert peak < 16 << 20


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=8,
)
cases = st.fixed_dictionaries(
    {},
    optional={
        "id": json_values,
        "engine": json_values | st.sampled_from(["vllm", "llama.cpp", "ollama"]),
        "engine_version": json_values,
        "model_config": json_values,
        "flags": json_values,
        "gpu": json_values,
        "log_lines": st.lists(mutated_lines() | json_values, max_size=6) | json_values,
    },
)


@given(st.lists(cases.map(json.dumps) | st.text(max_size=50), max_size=6))
@settings(
    deadline=None, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
def test_any_case_file_is_reported_line_by_line(tmp_path: Path, lines: list[str]) -> None:
    path = tmp_path / "cases.jsonl"
    path.write_bytes("\n".join(line.replace("\n", " ") for line in lines).encode("utf-8", "replace"))
    report = check_cases(path)
    json.dumps(check_json(report), allow_nan=False)
    written = sum(1 for line in path.read_bytes().split(b"\n") if line.strip())
    assert len(report.cases) + len(report.problems) <= written
