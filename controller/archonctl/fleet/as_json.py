"""The answers of ``fleet plan`` and ``fleet gate`` under their published schemas; what is not known is null."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from archonctl.errors import ArchonError
from archonctl.findings import Finding
from archonctl.fleet.answer import EndpointRow, FleetPlan, HostRow
from archonctl.fleet.gating import FleetGate
from archonctl.fleet.together import OnHost, Together
from archonctl.memory.interval import MIB

GATE_SCHEMA = "archonctl.fleet-gate/1"
PLAN_SCHEMA = "archonctl.fleet-plan/1"


def plan_json(plan: FleetPlan) -> dict[str, Any]:
    """``docs/schemas/fleet-plan-1.json``."""
    return {
        "schema": PLAN_SCHEMA,
        "verdict": plan.verdict,
        "without": list(plan.without),
        "placement": {"proven": plan.proven, "why": plan.why or None, "moves": len(_moves(plan))},
        "spare": {
            "wanted": plan.spare,
            "survived": None if not plan.spare else not plan.losses and _is_complete(plan),
            "proven": plan.spare_proven,
            "ways": [{"text": way.text, "costs": way.costs or None} for way in plan.spare_ways],
            "losses": [
                {
                    "hosts": list(loss.hosts),
                    "endpoints": list(loss.endpoints),
                    "unplaced": dict(loss.unplaced),
                    "proven": loss.proven,
                }
                for loss in plan.losses
            ],
        },
        "endpoints": [_endpoint(row) for row in plan.endpoints],
        "moves": [{"endpoint": m.endpoint, "from": m.source or None, "to": m.target or None} for m in plan.moves],
        "hosts": [_host(row) for row in plan.hosts],
        "notes": list(plan.notes),
    }


def gate_json(gate: FleetGate) -> dict[str, Any]:
    """``docs/schemas/fleet-gate-1.json``."""
    counts = Counter(host.word for host in gate.hosts)
    return {
        "schema": GATE_SCHEMA,
        "result": gate.word,
        "strict": gate.strict,
        "counts": {word: counts[word] for word in ("clean", "refused", "invalid", "unread")},
        "hosts": [
            {
                "name": host.known.name,
                "result": host.word,
                "problem": problem_json(host.known.problem),
                "endpoints": [
                    {"name": one.name, "declaration": str(one.declaration), "cards": cards_json(one.cards)}
                    for one in host.known.host.endpoints
                ],
                "findings": findings_json(host.findings),
            }
            for host in gate.hosts
        ],
    }


def cards_json(cards: tuple[int, ...] | None) -> list[int] | None:
    """Indices; null where nobody said which."""
    return None if cards is None else list(cards)


def _moves(plan: FleetPlan) -> list[str]:
    return [move.endpoint for move in plan.moves if move.source and move.target]


def _is_complete(plan: FleetPlan) -> bool:
    return all(row.wanted is None or row.placed >= row.wanted for row in plan.endpoints)


def _endpoint(row: EndpointRow) -> dict[str, Any]:
    return {
        "name": row.name,
        "contract": None if row.seqs is None else {"seqs": row.seqs, "len": row.len},
        "replicas": {"wanted": row.wanted, "placed": row.placed, "before": row.before},
        "nodes": row.nodes,
        "hosts": list(row.hosts),
        "reason": row.reason or None,
        "ways": [{"text": way.text, "costs": way.costs or None} for way in row.ways],
        "problem": problem_json(row.problem),
    }


def _host(row: HostRow) -> dict[str, Any]:
    together = row.together
    return {
        "name": row.known.name,
        "verdict": row.verdict,
        "problem": problem_json(row.problem),
        "survived": row.survived,
        "endpoints": _endpoints(row, together),
        "came": list(row.came),
        "went": list(row.went),
        "cards": [
            {
                "index": card.index,
                "name": card.name,
                "total_mib": card.total_mib,
                "free_mib": card.free_mib,
                "taken_mib": dict(card.taken_mib),
            }
            for card in (together.cards if together else ())
        ],
        "ram": ram_json(together),
        "ttm": {
            "floor_mib": together.ttm_floor_mib if together else None,
            "limit_mib": together.ttm_limit_mib if together else None,
        },
        "findings": findings_json(together.findings if together else ()),
    }


def _endpoints(row: HostRow, together: Together | None) -> list[dict[str, Any]]:
    judged: dict[str, OnHost] = {one.name: one for one in together.endpoints} if together else {}
    found = []
    for one in row.assigned:
        on = judged.get(one.name)
        found.append(
            {
                "name": one.name,
                "declaration": str(one.declaration),
                "cards": list(on.cards if on else one.cards or ()),
                "share_cards": one.share_cards,
                "verdict": on.verdict if on else None,
                "reasons": list(on.reasons) if on else [],
                "problem": problem_json(on.problem) if on else None,
            }
        )
    return found


def ram_json(together: Together | None) -> dict[str, Any] | None:
    """RAM of a host: what all of its endpoints want, and what may be used."""
    ram = together.ram if together else None
    if ram is None:
        return None
    known = ram.is_known
    return {
        "verdict": ram.verdict,
        "want_mib": -(-ram.want_bytes // MIB),
        "budget_mib": ram.budget_bytes // MIB if known else None,
        "margin_mib": ram.margin_bytes // MIB if known else None,
    }


def problem_json(err: ArchonError | None) -> dict[str, Any] | None:
    """An error as everywhere: code, message, where, hint."""
    return None if err is None else {key: value or None for key, value in err.as_dict().items()}


def findings_json(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    """Findings as ``archonctl gate`` writes them, without edits."""
    return [
        {
            "code": one.code,
            "severity": one.severity,
            "message": one.message,
            "path": one.place.path or None,
            "line": one.place.line or None,
            "column": one.place.column or None,
            "fix": one.fix or None,
        }
        for one in findings
    ]
