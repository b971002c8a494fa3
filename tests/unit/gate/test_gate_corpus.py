"""Good files are left alone, and each bad line is named at its word. The files lie in tests/golden/gate."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from archonctl.gate.paths import Options, check_paths
from archonctl.gate.values import GateReport

FOLDER = Path(__file__).parents[2] / "golden" / "gate"
EXPECTED = FOLDER / "bad.expected"
KNOWN = {("docker-vllm.sh", "image-not-pinned")}
"""What of the good files is only pinned by a tag."""


@pytest.fixture(scope="module")
def good() -> GateReport:
    return check_paths([FOLDER / "good"], Options(verify_units=False))


@pytest.fixture(scope="module")
def bad() -> GateReport:
    return check_paths([FOLDER / "bad"], Options(verify_units=False))


def test_good_files_raise_no_alarm(good: GateReport) -> None:
    alarms = {(Path(one.place.path).name, one.code) for one in good.findings if one.severity != "note"}
    assert alarms == KNOWN


def test_every_good_file_that_starts_an_engine_was_judged(good: GateReport) -> None:
    files = {path.name for path in (FOLDER / "good").rglob("*") if path.is_file()}
    assert {Path(name).name for name in good.files} == files - {"nginx.service", "notes.yml"}
    assert {Path(name).name for name in good.skipped} == {"nginx.service", "notes.yml"}


def test_bad_files_are_found_out_word_for_word(bad: GateReport) -> None:
    found = [
        f"{one.severity:<7} {one.code} {Path(one.place.path).relative_to(FOLDER)}:{one.place.line}:{one.place.column}"
        for one in bad.findings
    ]
    assert "\n".join(found) + "\n" == EXPECTED.read_text()


def test_every_finding_says_what_to_do_or_both_values(bad: GateReport) -> None:
    for one in bad.findings:
        assert one.message
        assert str(one).isprintable(), one
        assert one.severity == "note" or one.fix or re.search(r"\d|'|expected", one.message), one


def test_every_finding_in_a_file_stands_at_a_line_that_is_there(bad: GateReport) -> None:
    for one in bad.findings:
        lines = Path(one.place.path).read_text().split("\n")
        assert one.place.line <= len(lines)
        assert one.place.column <= len(lines[one.place.line - 1]) + 1 if one.place.line else True
