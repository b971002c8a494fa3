"""A report as other tools read it: validated, parsed back, and escaped where it must be."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft4Validator
from junitparser import Failure, JUnitXml

from archonctl.findings import Edit, Finding, Place
from archonctl.gate.formats import github_text, junit_text, report_value, sarif_value
from archonctl.gate.paths import Options, check_paths
from archonctl.gate.values import GateReport

GOLDEN = Path(__file__).parents[2] / "golden"
SARIF = Draft4Validator(json.loads((GOLDEN / "sarif" / "sarif-2.1.0.json").read_text()))
ODD = Finding("knob-unknown", "error", "a, b: 100% \n<&>\x00\ud800\u2028", Place("a b,c:d%.sh", 3, 0), "x\ny")
EDITS = (
    Finding("a-b", "warning", "m", Place("f.sh", 1, 2), "", Edit("f.sh", 1, "old", None)),
    Finding("a-b", "note", "m", Place(), "fix", Edit("f.sh", 2, "old", "new")),
)


@pytest.fixture(scope="module")
def report() -> GateReport:
    return check_paths([GOLDEN / "gate"], Options(verify_units=False))


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("findings", [(), (ODD,), EDITS, (ODD, *EDITS)])
def test_a_log_is_valid_sarif(findings: tuple[Finding, ...], strict: bool) -> None:
    value = sarif_value(GateReport(findings, ("a", "f.sh"), strict))
    assert [error.message for error in SARIF.iter_errors(value)] == []
    json.dumps(value)


def test_a_real_report_is_valid_sarif_with_a_rule_a_code(report: GateReport) -> None:
    value = sarif_value(report)
    assert [error.message for error in SARIF.iter_errors(value)] == []
    run = value["runs"][0]  # type: ignore[index]
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert len(rules) == len(set(rules))
    assert all(rules[result["ruleIndex"]] == result["ruleId"] for result in run["results"])
    assert all(rule["shortDescription"]["text"] != rule["id"] for rule in run["tool"]["driver"]["rules"])
    assert len(run["results"]) == len(report.findings)
    assert any("fixes" in result for result in run["results"])


def test_junit_is_read_by_a_parser(report: GateReport) -> None:
    suites = list(JUnitXml.fromstring(junit_text(report).encode()))
    cases = [case for suite in suites for case in suite]
    failed = [case for case in cases if any(isinstance(result, Failure) for result in case.result)]
    assert len(failed) == sum(one.severity == "error" for one in report.findings)
    assert {suite.name for suite in suites} >= set(report.files)
    assert sum(suite.tests for suite in suites) == len(cases)
    assert sum(suite.failures for suite in suites) == len(failed)


def test_junit_holds_any_text_and_a_clean_file_passes() -> None:
    xml = JUnitXml.fromstring(junit_text(GateReport((ODD, *EDITS), ("clean.toml",), strict=True)).encode())
    assert next(iter(xml)).name == "clean.toml"
    assert [suite.failures for suite in xml] == [0, 1, 1, 0]


@given(st.text(), st.text(), st.integers(0, 9))
def test_github_commands_are_one_line_each_whatever_is_in_them(path: str, message: str, line: int) -> None:
    text = github_text(GateReport((Finding("a-b", "warning", message, Place(path, line)),), ()))
    assert "\n" not in text
    assert "\r" not in text
    found = re.fullmatch(r"::warning ([^:]*)::(.*)", text, re.DOTALL)
    assert found
    assert len(found[1].split(",")) == 1 + bool(path) + bool(line)


def test_github_levels_and_places() -> None:
    lines = github_text(GateReport((ODD, *EDITS), ())).split("\n")
    assert lines[0].startswith("::error file=a b%2Cc%3Ad%25.sh,line=3,title=knob-unknown::a, b: 100%25 %0A")
    assert lines[1] == "::warning file=f.sh,line=1,col=2,title=a-b::m"
    assert lines[2] == "::notice title=a-b::m (fix)"


def test_counts_and_refusal() -> None:
    value = report_value(GateReport((ODD, *EDITS), ("f",)))
    assert (value["errors"], value["warnings"], value["notes"], value["refused"]) == (1, 1, 1, True)
    assert report_value(GateReport(EDITS, ()))["refused"] is False
    assert report_value(GateReport(EDITS, (), strict=True))["refused"] is True
