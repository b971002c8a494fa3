"""Case files as people have them: broken lines, missing keys, other shapes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from archonctl.errors import UsageError
from archonctl.ledger import check
from archonctl.ledger.check import check_cases
from archonctl.ledger.quoted import quoted_figures

KV = "GPU KV cache size: 178,880 tokens"


def write(path: Path, *lines: str | bytes) -> Path:
    raw = [line if isinstance(line, bytes) else line.encode() for line in lines]
    path.write_bytes(b"\n".join(raw))
    return path


def test_bad_lines_are_reported_and_good_ones_checked(tmp_path: Path) -> None:
    report = check_cases(
        write(
            tmp_path / "c.jsonl",
            json.dumps({"id": "a", "log_lines": [KV]}),
            "",
            '{"id": "b", "log_lines": [',
            "[1, 2]",
            json.dumps({"id": "c"}),
            b"\xff\xfe\x00",
            json.dumps({"log_lines": [KV, 5, None, {"x": 1}]}),
            "[" * 100_000,
        )
    )
    assert [case.id for case in report.cases] == ["a", "line 7"]
    assert [case.observed_kv_tokens for case in report.cases] == [178880, 178880]
    assert [(p.line_no, p.code) for p in report.problems] == [
        (3, "case-not-json"),
        (4, "case-not-object"),
        (5, "case-without-lines"),
        (6, "case-not-json"),
        (8, "case-not-json"),
    ]


def test_a_byte_order_mark_and_a_log_in_one_string_are_taken(tmp_path: Path) -> None:
    report = check_cases(
        write(tmp_path / "c.jsonl", b"\xef\xbb\xbf" + json.dumps({"log_lines": f"x\n{KV}\n"}).encode())
    )
    assert report.cases[0].observed_kv_tokens == 178880


def test_a_line_longer_than_the_limit_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "CASE_BYTES", 1000)
    report = check_cases(write(tmp_path / "c.jsonl", "x" * 5000, json.dumps({"id": "a", "log_lines": [KV]})))
    assert [(p.line_no, p.code) for p in report.problems] == [(1, "case-too-long")]
    assert [case.id for case in report.cases] == ["a"]


def test_an_empty_file_has_no_cases(tmp_path: Path) -> None:
    report = check_cases(write(tmp_path / "c.jsonl", ""))
    assert (report.cases, report.problems) == ((), ())


@pytest.mark.parametrize("name", ["missing.jsonl", "."])
def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="cases-unreadable"):
        check_cases(tmp_path / name)


def test_a_case_without_a_ledger_has_no_tokens_and_says_why(tmp_path: Path) -> None:
    case = check_cases(write(tmp_path / "c.jsonl", json.dumps({"id": "a", "log_lines": ["hello"]}))).cases[0]
    assert (case.engine_detected, case.observed_kv_tokens, case.error) == ("unknown", None, None)
    assert case.prediction.kv_tokens is not None or case.prediction.reason


def test_a_wrong_engine_hint_does_not_hide_what_the_lines_say(tmp_path: Path) -> None:
    record = {"id": "a", "engine": "sglang", "log_lines": [KV]}
    case = check_cases(write(tmp_path / "c.jsonl", json.dumps(record))).cases[0]
    assert case.engine_detected == "vllm"
    assert case.observed_kv_tokens == 178880


def test_figures_quoted_in_prose_are_marked_as_such(tmp_path: Path) -> None:
    row = "| baseline | **35.78 GiB** | 1,562,880 tokens | 9.17x |"
    case = check_cases(write(tmp_path / "c.jsonl", json.dumps({"engine": "vllm", "log_lines": [row]}))).cases[0]
    assert case.quoted
    assert case.read == {"available_gib": 35.78, "kv_tokens": 1562880, "max_concurrency": 9.17}
    silent = check_cases(write(tmp_path / "d.jsonl", json.dumps({"log_lines": [row]}))).cases[0]
    assert not silent.read


@pytest.mark.parametrize(
    ("line", "figures"),
    [
        ("only 2.30GiB for KV cache while", {"available_gib": 2.3}),
        ("| 12 GiB |", {}),
        ("took 4x longer", {}),
        ("KV cache size of 12,345 tokens", {"kv_tokens": 12345}),
    ],
)
def test_prose_is_read_where_it_is_plain(line: str, figures: dict[str, float]) -> None:
    assert quoted_figures([line]) == figures
