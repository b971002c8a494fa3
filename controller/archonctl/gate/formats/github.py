"""Workflow commands of GitHub Actions. Source: "Workflow commands for GitHub Actions", setting an error message."""

from __future__ import annotations

from archonctl.findings import Finding
from archonctl.gate.values import GateReport

_LEVELS = {"error": "error", "warning": "warning", "note": "notice"}
_DATA = {"%": "%25", "\r": "%0D", "\n": "%0A"}
_PROPERTY = {**_DATA, ":": "%3A", ",": "%2C"}


def github_text(report: GateReport) -> str:
    """One line a finding; empty where there is none."""
    return "\n".join(_line(finding) for finding in report.findings)


def _line(finding: Finding) -> str:
    place = finding.place
    properties = {
        "file": place.path,
        "line": str(place.line or ""),
        "col": str(place.column or ""),
        "title": finding.code,
    }
    shown = ",".join(f"{name}={_escaped(text, _PROPERTY)}" for name, text in properties.items() if text)
    message = finding.message + (f" ({finding.fix})" if finding.fix else "")
    return f"::{_LEVELS[finding.severity]} {shown}::{_escaped(message, _DATA)}"


def _escaped(text: str, marks: dict[str, str]) -> str:
    return "".join(marks.get(char, char) for char in text)
