"""One look of ``archonctl watch`` under its published schema, ``archonctl.watch/1``."""

from __future__ import annotations

from typing import Any

from archonctl.observe.watch import Memory, Note, Snapshot, Watched

SCHEMA = "archonctl.watch/1"


def watch_json(seen: Snapshot) -> dict[str, Any]:
    """Everything that the screen shows; what is unknown is null."""
    return {
        "schema": SCHEMA,
        "at": seen.at,
        "memory": [_memory(each) for each in seen.memory],
        "endpoints": [_endpoint(each) for each in seen.endpoints],
        "findings": [_note(each) for each in seen.notes],
    }


def _memory(each: Memory) -> dict[str, Any]:
    return {
        "card": None if each.place == "host" else each.place,
        "total_bytes": _whole(each.total_bytes),
        "used_bytes": _whole(each.used_bytes),
        "planned": [{"endpoint": part.endpoint, "class": part.cls, "bytes": int(part.bytes)} for part in each.planned],
    }


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def _endpoint(each: Watched) -> dict[str, Any]:
    plan, refused = each.planned_tokens, each.refused
    return {
        "endpoint": each.name,
        "verdict": each.verdict or None,
        "evidence_age_s": each.evidence_age_s,
        "engine": f"{each.engine} {each.version}".strip() or None,
        "release": each.release or None,
        "seqs": each.seqs,
        "len_tokens": each.len_tokens,
        "contract_tokens": each.contract_tokens,
        "margin": each.margin,
        "planned_tokens": None if plan is None else dict(zip(("low", "best", "high"), plan, strict=True)),
        "live_tokens": each.live_tokens,
        "unit": each.unit or None,
        "active_at": each.active_at,
        "restarts": each.restarts,
        "runs_release": each.runs_release,
        "refusal": None if refused is None else {"code": refused[0], "at": refused[1]},
        "kv_usage": each.kv_usage,
        "running": each.running,
        "waiting": each.waiting,
        "preemptions": each.preemptions,
        "turned_away": each.turned_away,
        "engine_age_s": each.engine_age_s,
        "blind": [{"look": look.look, "age_s": look.age_s} for look in each.blind],
    }


def _note(each: Note) -> dict[str, Any]:
    found = {"at": each.at, "endpoint": each.endpoint, "level": each.level, "code": each.code, "text": each.text}
    return {name: None if value == "" else value for name, value in found.items()}
