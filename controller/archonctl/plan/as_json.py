"""The plan under its published schema, ``archonctl.plan/1``: stable keys, bytes as integers."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from archonctl.engines.base import CardShare
from archonctl.memory.interval import Interval
from archonctl.plan.values import Plan

SCHEMA = "archonctl.plan/1"


def plan_json(plan: Plan) -> dict[str, Any]:
    """A JSON-ready dict; unknown figures are null, never 0."""
    contract, forecast = plan.contract, plan.forecast
    tokens = forecast.kv_tokens
    return {
        "schema": SCHEMA,
        "endpoint": plan.endpoint,
        "engine": {"kind": plan.engine, "version": plan.engine_version},
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
            "kv_tokens": _whole(tokens.best) if tokens else None,
            "kv_tokens_low": _whole(tokens.low) if tokens else None,
            "kv_tokens_high": _whole(tokens.high) if tokens else None,
            "sessions": round(tokens.best / contract.len, 3) if tokens else None,
            "margin_tokens": _whole(tokens.best) - contract.tokens if tokens else None,
            "seqs_limit": forecast.seqs_limit,
            "seq_len_limit": forecast.seq_len_limit,
            "method": forecast.method,
            "source": tokens.source if tokens else None,
            "methods": {name: _interval(value) for name, value in forecast.methods.items()},
        },
        "cards": [_card(card) for card in forecast.cards],
        "host": {
            "ttm_floor_mib": forecast.host_need.ttm_floor_mib,
            "ttm_floor_pages": forecast.host_need.ttm_floor_pages,
        },
        "levers": [
            {"text": lever.text, "set": dict(lever.set), "wins_tokens": lever.wins_tokens, "costs": lever.costs}
            for lever in forecast.levers
        ],
        "demands": [
            {
                "class": demand.cls,
                "scope": demand.scope,
                "card": demand.card,
                "dtype": demand.dtype,
                "bytes": demand.bytes,
                "detail": demand.detail,
                "source": demand.source,
            }
            for demand in forecast.demands
        ],
        "fits": [asdict(f) for f in plan.fits],
        "problems": [asdict(problem) for problem in forecast.problems],
        "notes": list(plan.notes),
        "not_modelled": list(forecast.not_modelled),
    }


def _whole(value: float) -> int:
    """Tokens are whole: a fraction of one is not served."""
    return int(value)


def _interval(value: Interval) -> dict[str, float | str]:
    return {"low": value.low, "best": value.best, "high": value.high, "source": value.source}


def _card(card: CardShare) -> dict[str, float | int | str | None]:
    return {key: (round(value, 2) if isinstance(value, float) else value) for key, value in asdict(card).items()}
