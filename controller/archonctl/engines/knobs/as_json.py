"""The values of ``archonctl knobs`` under ``archonctl.knobs/1``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from archonctl.engines.knobs.history import Difference, Life, Moved, default_at
from archonctl.engines.knobs.row import Knob
from archonctl.engines.knobs.table import Edition, KnobTable
from archonctl.engines.knobs.verdict import ArgvFinding

SCHEMA = "archonctl.knobs/1"


def check_json(
    engine: str, version: str, argv: Sequence[str], program: int, findings: Iterable[ArgvFinding]
) -> dict[str, Any]:
    """``knobs check``: the verdict and every finding; ``index`` is null where it is about no single word.

    The first ``program`` words of argv name the program, and were not judged.
    """
    found = list(findings)
    refused = any(finding.severity == "error" for finding in found)
    return {
        "schema": SCHEMA,
        "verdict": "refused" if refused else "good",
        "engine": engine,
        "version": version or None,
        "argv": list(argv),
        "program": list(argv[:program]),
        "findings": [_finding(finding) for finding in found],
    }


def _finding(finding: ArgvFinding) -> dict[str, Any]:
    return {
        "code": finding.code,
        "severity": finding.severity,
        "index": finding.index if finding.index >= 0 else None,
        "argument": finding.argument or None,
        "message": finding.message,
        "fix": finding.fix or None,
        "replacement": None if finding.replacement is None else list(finding.replacement),
        "span": finding.span,
    }


def show_json(one: Edition, knobs: Iterable[Knob]) -> dict[str, Any]:
    """``knobs show``: the flags of one version."""
    return {
        "schema": SCHEMA,
        "engine": one.table.engine,
        "version": one.version,
        "standing": one.standing,
        "knobs": [{**knob_json(knob), "default": default_at(one.table, knob, one.version) or None} for knob in knobs],
    }


def why_json(flag: str, lives: Iterable[Life]) -> dict[str, Any]:
    """``knobs why``: the life of a flag in every engine that knows it."""
    return {
        "schema": SCHEMA,
        "flag": flag,
        "lives": [
            {
                "engine": life.engine,
                "forms": [knob_json(knob) for knob in life.forms],
                "retired": None if life.retired is None else _plain(asdict(life.retired)),
            }
            for life in lives
        ],
    }


def diff_json(engine: str, before: str, after: str, found: Difference) -> dict[str, Any]:
    """``knobs diff`` and the difference of ``knobs harvest``."""
    return {
        "schema": SCHEMA,
        "engine": engine,
        "from": before,
        "to": after,
        "added": [knob_json(knob) for knob in found.added],
        "removed": [_moved(moved) for moved in found.removed],
        "renamed": [_moved(moved) for moved in found.renamed],
        "changed": [
            {"flag": altered.flag, "changes": [_plain(asdict(change)) for change in altered.changes]}
            for altered in found.altered
        ],
    }


def _moved(moved: Moved) -> dict[str, Any]:
    return {
        "flag": moved.knob.flag,
        "names": list(moved.knob.names),
        "env_key": moved.knob.env_key or None,
        "renamed_to": moved.to or None,
        "note": moved.note or None,
    }


def knob_json(knob: Knob) -> dict[str, Any]:
    """One row; what it does not say is null."""
    row = _plain(asdict(knob))
    return {**row, "takes": knob.takes, "defaults": knob.defaults, "hidden": knob.hidden}


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    return {
        column: list(cell) if isinstance(cell, tuple) else None if cell == "" else cell for column, cell in row.items()
    }


def engines_json(tables: Iterable[KnobTable]) -> dict[str, Any]:
    """``knobs show`` without an engine: which tables there are, and which versions were read."""
    rows = [{"engine": one.engine, "versions": list(one.versions), "rows": len(one.knobs)} for one in tables]
    return {"schema": SCHEMA, "engines": rows}
