"""The report as JSON under ``archonctl.gate/1``."""

from __future__ import annotations

from collections import Counter

from archonctl.findings import Finding
from archonctl.gate.values import GateReport


def report_value(report: GateReport) -> dict[str, object]:
    """The value of ``archonctl gate --json``; places that are not known are null."""
    counts = Counter(finding.severity for finding in report.findings)
    return {
        "schema": "archonctl.gate/1",
        "refused": report.refused,
        "strict": report.strict,
        "errors": counts["error"],
        "warnings": counts["warning"],
        "notes": counts["note"],
        "files": list(report.files),
        "findings": [_finding(finding) for finding in report.findings],
    }


def _finding(finding: Finding) -> dict[str, object]:
    place, edit = finding.place, finding.edit
    return {
        "code": finding.code,
        "severity": finding.severity,
        "message": finding.message,
        "path": place.path or None,
        "line": place.line or None,
        "column": place.column or None,
        "fix": finding.fix or None,
        "edit": {"path": edit.path, "line": edit.line, "old": edit.old, "new": edit.new} if edit else None,
    }
