"""A proposal under its published schema, ``docs/schemas/migrate-1.json``."""

from __future__ import annotations

from typing import Any

from archonctl.migration.values import Outcome, Proposal, Step


def proposal_json(found: Proposal, written: str) -> dict[str, Any]:
    """The value of ``archonctl migrate --json``; ``written`` is the file that was written, empty for none."""
    return {
        "schema": "archonctl.migrate/1",
        "endpoint": found.endpoint,
        "declaration": found.path,
        "engine": {"kind": found.engine, "from": found.before_version, "to": found.after_version},
        "contract": dict(found.contract),
        "steps": [_step(step) for step in found.steps],
        "before": _outcome(found.before),
        "moved": _outcome(found.moved),
        "proposed": _outcome(found.proposed),
        "toml": found.text,
        "path": written or None,
    }


def _step(step: Step) -> dict[str, Any]:
    return {
        "action": step.action,
        "key": step.key or None,
        "why": step.why,
        "before": step.before,
        "after": step.after,
        "renamed_to": step.renamed_to or None,
        "source": step.source or None,
    }


def _outcome(one: Outcome) -> dict[str, Any]:
    tokens = one.kv_tokens
    return {
        "version": one.version,
        "verdict": one.verdict,
        "kv_tokens": {"low": tokens[0], "best": tokens[1], "high": tokens[2]} if tokens else None,
        "sessions": round(one.sessions, 2) if one.sessions is not None else None,
        "ttm_floor_mib": one.ttm_floor_mib,
        "reasons": list(one.reasons),
    }
