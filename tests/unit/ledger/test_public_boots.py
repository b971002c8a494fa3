"""Pieces of boot logs as people quote them in public repositories and reports: every figure in them is read.

``tests/golden/ledgers/public.jsonl`` was gathered by the phrases of the engines, from notes, reports and test data of
others: all engines, 2023 to 2026, with whatever carried the lines.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from archonctl.ledger import read_ledger
from archonctl.ledger.check import check_cases
from archonctl.ledger.reader import LedgerReader
from archonctl.ledger.refusal import refusal

PUBLIC = Path(__file__).parents[2] / "golden" / "ledgers" / "public.jsonl"
CASES = {case["id"]: case for case in map(json.loads, PUBLIC.read_text(encoding="utf-8").splitlines())}


def test_there_are_pieces_of_every_engine() -> None:
    engines = Counter(case["engine"] for case in CASES.values())
    assert set(engines) == {"vllm", "sglang", "llama.cpp", "ollama", "tensorrt-llm", "lmdeploy"}
    assert sum(len(case["log_lines"]) for case in CASES.values()) > 400


@pytest.mark.parametrize("name", CASES)
def test_every_figure_of_a_public_piece_is_read(name: str) -> None:
    case = CASES[name]
    reader = LedgerReader()
    for line in case["log_lines"]:
        reader.feed(line)
    ledger = reader.result()
    read = {figure: found.best for figure in case["observed"] if (found := ledger.get(figure)) is not None}
    assert read == pytest.approx(case["observed"], rel=0.001)
    assert reader.detected() == case["engine"]
    cause = refusal(ledger)
    assert (cause.code if cause else "") == case.get("refusal", "")


def test_the_pieces_are_cases_for_the_command_as_well() -> None:
    report = check_cases(PUBLIC)
    assert not report.problems
    for case in report.cases:
        wanted = CASES[case.id]["observed"]
        assert {k: v for k, v in case.read.items() if k in wanted} == pytest.approx(wanted, rel=0.001), case.id


def test_blocks_of_a_platform_are_as_large_as_the_printed_concurrency_says() -> None:
    """Neuron's block is a whole request; 16 tokens would be a sixty-fourth of the truth."""
    lines = ("# neuron blocks: 4, # CPU blocks: 0", "Maximum concurrency for 1024 tokens per request: 4.00x")
    alone, told = read_ledger(lines[:1], "vllm"), read_ledger(lines, "vllm")
    assert "kv_tokens" not in alone.figures
    assert told.figures["kv_tokens"].value.best == 4096
