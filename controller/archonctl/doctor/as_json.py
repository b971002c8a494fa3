"""The report and the table of checks under ``docs/schemas/doctor-1.json``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

from archonctl.doctor.values import Check, Line, Report, Status

SCHEMA = "archonctl.doctor/1"


def report_json(report: Report) -> dict[str, Any]:
    """What was found. ``unseen`` of a skipped check: it applies, and could not be looked at."""
    return {
        "schema": SCHEMA,
        "action": "check",
        "machine": report.machine or None,
        "endpoints": list(report.endpoints),
        "strict": report.strict,
        "exit_code": report.exit_code,
        "counts": {**{status: report.count(status) for status in get_args(Status)}, "unseen": report.unseen},
        "results": [_line(line) for line in report.lines],
    }


def table_json(checks: Sequence[Check]) -> dict[str, Any]:
    """Every check."""
    rows = [
        {
            "id": check.id,
            "title": check.title,
            "group": check.group,
            "per": check.per,
            "looks_at": check.looks_at,
            "codes": list(check.codes),
        }
        for check in checks
    ]
    return {"schema": SCHEMA, "action": "list", "checks": rows}


def _line(line: Line) -> dict[str, Any]:
    result = line.result
    return {
        "check": line.check.id,
        "group": line.check.group,
        "endpoint": line.endpoint or None,
        "status": result.status,
        "message": result.message,
        "code": result.code or None,
        "fix": result.fix or None,
        "unseen": result.unseen,
    }
