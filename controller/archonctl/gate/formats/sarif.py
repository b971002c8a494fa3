"""SARIF 2.1.0, as code scanning services read it. Source: OASIS Static Analysis Results Interchange Format 2.1.0."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote

from archonctl import __version__
from archonctl.errors import ArchonError
from archonctl.findings import Finding
from archonctl.gate.values import GateReport
from archonctl.runbook import page, pages

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def sarif_value(report: GateReport) -> dict[str, object]:
    """The log: one run, a rule a code, a result a finding."""
    codes = list(dict.fromkeys(finding.code for finding in report.findings))
    driver = {
        "name": "archonctl",
        "version": __version__,
        "semanticVersion": __version__,
        "rules": [_rule(code) for code in codes],
    }
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "invocations": [{"executionSuccessful": True, "exitCode": 4 if report.refused else 0}],
        "results": [_result(finding, codes.index(finding.code)) for finding in report.findings],
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(code: str) -> dict[str, object]:
    try:
        text = page(code)
    except ArchonError:
        text = ""
    return {
        "id": code,
        "shortDescription": {"text": pages().get(code) or code},
        "help": {"text": text or code, "markdown": text or code},
    }


def _result(finding: Finding, index: int) -> dict[str, object]:
    message = finding.message + (f" ({finding.fix})" if finding.fix else "")
    found: dict[str, object] = {
        "ruleId": finding.code,
        "ruleIndex": index,
        "level": finding.severity,
        "message": {"text": message},
    }
    if finding.place.path:
        found["locations"] = [{"physicalLocation": _location(finding)}]
    if finding.edit is not None:
        found["fixes"] = [_fix(finding)]
    return found


def _location(finding: Finding) -> dict[str, object]:
    place = finding.place
    located: dict[str, object] = {"artifactLocation": {"uri": _uri(place.path)}}
    if place.line:
        region = {"startLine": place.line}
        located["region"] = region | ({"startColumn": place.column} if place.column else {})
    return located


def _fix(finding: Finding) -> dict[str, object]:
    edit = finding.edit
    if edit is None:
        return {}
    whole = {"startLine": edit.line, "startColumn": 1, "endLine": edit.line, "endColumn": len(edit.old) + 1}
    removed = {"startLine": edit.line, "startColumn": 1, "endLine": edit.line + 1, "endColumn": 1}
    replacement: dict[str, object] = {"deletedRegion": removed if edit.new is None else whole}
    if edit.new is not None:
        replacement["insertedContent"] = {"text": edit.new}
    change = {"artifactLocation": {"uri": _uri(edit.path)}, "replacements": [replacement]}
    return {"description": {"text": finding.fix or finding.code}, "artifactChanges": [change]}


def _uri(path: str) -> str:
    """Relative to the current folder where it lies in it: what code scanning maps to the repository."""
    if os.path.isabs(path):  # noqa: PTH117
        here = Path(path)
        path = os.fspath(here.relative_to(Path.cwd())) if here.is_relative_to(Path.cwd()) else here.as_uri()
        return path if path.startswith("file:") else quote(path)
    return quote(path.removeprefix("./"), errors="replace")
