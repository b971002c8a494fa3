"""Ledgers and checks under their published schemas, ``docs/schemas/ledger-1.json`` and ``ledger-check-1.json``."""

from __future__ import annotations

from math import ceil, floor

from archonctl.ledger.check import CheckedCase, CheckReport
from archonctl.ledger.essentials import Essential, essentials
from archonctl.ledger.names import plain, unit_of
from archonctl.ledger.refusal import refusal
from archonctl.ledger.values import BootLedger, Reading, Remark

Json = dict[str, object]

UNDETECTED = "unknown"
"""What the reader calls an engine that the lines do not tell."""


def ledger_json(ledger: BootLedger) -> Json:
    """A ledger as ``archonctl.ledger/1``. What was not seen is absent or null, never 0."""
    cause = refusal(ledger)
    return {
        "schema": "archonctl.ledger/1",
        "engine": None if ledger.engine == UNDETECTED else ledger.engine,
        "engine_version": ledger.engine_version or None,
        "ready": bool(ledger.ready_line),
        "ready_line": ledger.ready_line or None,
        "boots": ledger.boots,
        "lines_read": ledger.lines_read,
        "essentials": {each.name: _essential(each) for each in essentials(ledger)},
        "figures": {name: _reading(ledger.engine, name, reading) for name, reading in ledger.figures.items()},
        "facts": dict(ledger.facts),
        "missing": list(ledger.missing),
        "remarks": [_remark(remark) for remark in ledger.remarks],
        "refusal": _remark(cause) if cause else None,
    }


def _reading(engine: str, name: str, reading: Reading) -> Json:
    value, best = reading.value, plain(reading)
    return {
        "value": best,
        "low": best if value.is_exact else round(value.low, 6),
        "high": best if value.is_exact else round(value.high, 6),
        "unit": unit_of(engine, name) or None,
        "line": reading.line_no,
        "text": reading.text,
    }


def _essential(each: Essential) -> Json | None:
    """Whole bytes and tokens: the low end rounded down, the high end up."""
    if each.reading is None:
        return None
    value = each.reading.value
    exact = {"value": plain(each.reading), "low": round(value.low, 6), "high": round(value.high, 6)}
    whole = {"value": round(value.best), "low": floor(value.low), "high": ceil(value.high)}
    ends = exact if each.name == "concurrency" else whole
    return {**ends, "figure": each.figure, "line": each.reading.line_no}


def _remark(remark: Remark) -> Json:
    return {"code": remark.code, "severity": remark.severity, "line": remark.line_no, "text": remark.text}


def check_json(report: CheckReport) -> Json:
    """A check of many cases as ``archonctl.ledger-check/1``."""
    return {
        "schema": "archonctl.ledger-check/1",
        "file": report.file,
        "cases": [_case(case) for case in report.cases],
        "problems": [{"line": p.line_no, "code": p.code, "message": p.message} for p in report.problems],
    }


def _case(case: CheckedCase) -> Json:
    predicted = case.prediction
    return {
        "id": case.id,
        "engine_detected": case.engine_detected,
        "engine_version": case.engine_version or None,
        "read": dict(case.read),
        "observed_kv_tokens": "unknown" if case.observed_kv_tokens is None else case.observed_kv_tokens,
        "predicted_kv_tokens": "unknown" if predicted.kv_tokens is None else predicted.kv_tokens,
        "basis": predicted.basis or None,
        "method": predicted.method or None,
        "error": case.error,
        "refusal": case.refusal or None,
        "remarks": list(case.remarks),
        "quoted": case.quoted,
        "reason": predicted.reason or None,
    }
