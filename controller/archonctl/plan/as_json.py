"""The plan under its published schema, ``docs/schemas/plan-1.json``: stable keys, bytes as integers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from archonctl.engines.base import CardShare
from archonctl.engines.terms import Term, numbers_in
from archonctl.memory.demand import Fit
from archonctl.memory.interval import Interval
from archonctl.plan.values import Plan

SCHEMA = "archonctl.plan/1"


def plan_json(plan: Plan, *, terms: bool = False) -> dict[str, Any]:
    """A JSON-ready dict, with the working if ``terms``; what is unknown or not said is null, never 0, never empty."""
    contract, forecast = plan.contract, plan.forecast
    tokens = forecast.kv_tokens
    return {
        "schema": SCHEMA,
        "endpoint": plan.endpoint,
        "engine": {"kind": plan.engine, "version": plan.engine_version or None},
        "verdict": plan.verdict,
        "reasons": list(plan.reasons),
        "contract": {
            "seqs": contract.seqs,
            "len": contract.len,
            "kv_dtype": contract.kv_dtype,
            "margin": contract.margin,
            "tokens": contract.tokens,
            "tokens_with_margin": contract.tokens_with_margin,
        },
        "capacity": {
            **_tokens(tokens),
            "sessions": round(tokens.best / contract.len, 3) if tokens else None,
            "margin_tokens": _whole(tokens.best) - contract.tokens if tokens else None,
            "seqs_limit": forecast.seqs_limit,
            "seq_len_limit": forecast.seq_len_limit,
            "method": forecast.method,
            "methods": {name: _tokens(value) for name, value in forecast.methods.items()},
        },
        "cards": [_card(card) for card in forecast.cards],
        "host": {
            "ttm_floor_mib": forecast.host_need.ttm_floor_mib,
            "ttm_floor_pages": forecast.host_need.ttm_floor_pages,
        },
        "levers": [
            {
                "text": lever.text,
                "set": dict(lever.set),
                "wins_tokens": lever.wins_tokens,
                "costs": lever.costs or None,
                "slab_lost_mib": lever.slab_lost_mib,
                "quality_risk": lever.quality or None,
                "throughput": lever.throughput or None,
            }
            for lever in forecast.levers
        ],
        "demands": [
            {
                "class": demand.cls,
                "scope": demand.scope,
                "card": demand.card,
                "dtype": demand.dtype or None,
                "bytes": demand.bytes,
                "low_bytes": demand.bytes if demand.low_bytes is None else demand.low_bytes,
                "high_bytes": demand.bytes if demand.high_bytes is None else demand.high_bytes,
                "detail": demand.detail or None,
                "source": demand.source,
            }
            for demand in forecast.demands
        ],
        "fits": [_fit(fit) for fit in plan.fits],
        "problems": [{"code": p.code, "message": p.message, "hint": p.hint or None} for p in forecast.problems],
        "notes": list(plan.notes),
        "not_modelled": list(forecast.not_modelled),
        **({"terms": _terms(forecast.terms)} if terms else {}),
    }


def _terms(terms: Sequence[Term]) -> list[dict[str, Any]]:
    """Each term as it is, and its formula with the numbers put in."""
    numbers = numbers_in(terms)
    rows = [{**asdict(term), "numbers": numbers.get(term.name)} for term in terms]
    return [{key: None if value == "" else value for key, value in row.items()} for row in rows]


def _whole(value: float) -> int:
    """Tokens are whole: a fraction of one is not served."""
    return int(value)


def _tokens(value: Interval | None) -> dict[str, int | str | None]:
    """An interval of whole tokens."""
    return {
        "kv_tokens": _whole(value.best) if value else None,
        "kv_tokens_low": _whole(value.low) if value else None,
        "kv_tokens_high": _whole(value.high) if value else None,
        "source": value.source if value else None,
    }


def _fit(fit: Fit) -> dict[str, Any]:
    """Against an unknown capacity there is no budget and no margin: null."""
    return {
        "scope": fit.scope,
        "card": fit.card,
        "verdict": fit.verdict,
        "want_bytes": fit.want_bytes,
        "want_low_bytes": fit.want_low_bytes,
        "want_high_bytes": fit.want_high_bytes,
        "budget_bytes": fit.budget_bytes if fit.is_known else None,
        "margin_bytes": fit.margin_bytes if fit.is_known else None,
        "headroom": fit.headroom,
        "by_class": dict(fit.by_class),
        "reason": fit.reason,
    }


def _card(card: CardShare) -> dict[str, float | int | str | None]:
    return {key: (round(value, 2) if isinstance(value, float) else value) for key, value in asdict(card).items()}
