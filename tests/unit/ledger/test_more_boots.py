"""Boots that nobody had looked at while the laws were written: what they print against what the laws say.

``tests/golden/ledgers/more.jsonl`` was gathered from public issue threads and files after the laws were there: vLLM 0.7
to 0.27 with its forks, SGLang 0.4 to 0.5.17, llama.cpp from 2023 on, TensorRT-LLM. ``observed.tokens`` is what the
engine printed (the longest request, where it refused); it goes into no prediction.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from archonctl.ledger.check import CheckedCase, check_cases

MORE = Path(__file__).parents[2] / "golden" / "ledgers" / "more.jsonl"
CASES = {case["id"]: case for case in map(json.loads, MORE.read_text(encoding="utf-8").splitlines())}
UNKNOWN = {
    "ascend-llama31-eagle": "a draft model shares the cache",
    "llama32-3b-nvfp4": "NVFP4",
}
"""What no law decides, and a word of the reason that is given instead."""


@pytest.fixture(scope="module")
def checked() -> dict[str, CheckedCase]:
    report = check_cases(MORE)
    assert not report.problems
    return {case.id: case for case in report.cases}


def test_there_are_many_of_every_engine_and_each_has_its_source() -> None:
    engines = Counter(case["engine"] for case in CASES.values())
    assert engines["vllm"] >= 45
    assert engines["sglang"] >= 12
    assert engines["llama.cpp"] >= 15
    assert engines["tensorrt-llm"] >= 4
    assert all("find_string" in case["source"] or "github" in case["source"] for case in CASES.values())


@pytest.mark.parametrize("name", CASES)
def test_a_boot_is_within_one_percent_or_unknown_with_a_reason(name: str, checked: dict[str, CheckedCase]) -> None:
    case, seen = checked[name], CASES[name]["observed"]["tokens"]
    if name in UNKNOWN:
        assert case.prediction.kv_tokens is None
        assert UNKNOWN[name] in case.prediction.reason
        return
    assert case.prediction.kv_tokens == pytest.approx(seen, rel=0.01), case.prediction.method


def test_most_are_within_a_tenth_of_a_percent(checked: dict[str, CheckedCase]) -> None:
    off = [
        abs(found - CASES[name]["observed"]["tokens"]) / CASES[name]["observed"]["tokens"]
        for name, case in checked.items()
        if (found := case.prediction.kv_tokens) is not None
    ]
    assert sum(each <= 0.001 for each in off) > 0.8 * len(off)
