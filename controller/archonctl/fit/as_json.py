"""The answer under ``docs/schemas/fit-1.json``: bytes as integers, and GiB beside them where people read them."""

from __future__ import annotations

from typing import Any

from archonctl.deployment.schema import Endpoint
from archonctl.fit.values import Choice, FitResult, Refusal, Throughput
from archonctl.memory.interval import GIB, Interval


def fit_json(result: FitResult) -> dict[str, Any]:
    """The value of ``archonctl fit --json``."""
    return {
        "schema": "archonctl.fit/1",
        "model": result.model,
        "where": result.where,
        "seqs": result.seqs,
        "len": result.len,
        "verdict": result.verdict,
        "code": result.code,
        "message": result.message or None,
        "chosen": _choice(result.chosen) if result.chosen else None,
        "refusals": [_refusal(each) for each in result.refusals],
        "warnings": [{"code": each.code, "message": each.message, "fix": each.fix or None} for each in result.warnings],
        "ways_out": [{"text": each.text, "options": list(each.options)} for each in result.ways_out],
    }


def _choice(choice: Choice) -> dict[str, Any]:
    return {
        "quant": choice.quant,
        "engine": choice.engine,
        "tp": choice.tp,
        "split": choice.split,
        "est_gib": _gib(choice.est.best),
        "est_low_gib": _gib(choice.est.low),
        "est_high_gib": _gib(choice.est.high),
        "plain_est_gib": _gib(choice.plain_bytes),
        "free_gib": _gib(choice.free_bytes),
        "weights_bytes": choice.weights_bytes,
        "kv_bytes": choice.kv_bytes,
        "est_bytes": round(choice.est.best),
        "plain_est_bytes": choice.plain_bytes,
        "free_bytes": choice.free_bytes,
        "host_bytes": choice.host_bytes,
        "expert_layers_in_ram": choice.expert_layers,
        "kv": {"asked": choice.kv.asked, "served": choice.kv.dtype},
        "throughput": _throughput(choice.throughput) if choice.throughput else None,
        "declaration": declaration_of(choice.endpoint),
    }


def declaration_of(endpoint: Endpoint) -> dict[str, Any]:
    """What a declaration of it says, but for its host: as TOML it is one."""
    contract, engine = endpoint.contract, endpoint.engine
    return {
        "contract": {"seqs": contract.seqs, "len": contract.len, "kv_dtype": contract.kv_dtype},
        "engine": {"kind": engine.kind, "knobs": dict(engine.knobs), "env": dict(engine.env)},
        "model": {"path": endpoint.model.path},
    }


def _throughput(speed: Throughput) -> dict[str, Any]:
    return {
        "decode_tokens_s": _interval(speed.decode),
        "prefill_tokens_s": _interval(speed.prefill),
        "read_bytes_per_token": speed.read_bytes,
        "calibration": speed.calibration,
    }


def _refusal(refusal: Refusal) -> dict[str, Any]:
    return {
        "code": refusal.code,
        "quant": refusal.quant,
        "engine": refusal.engine,
        "message": refusal.message,
        "kernel": refusal.kernel or None,
        "est_gib": _gib(refusal.wanted_bytes) if refusal.wanted_bytes else None,
        "plain_est_gib": _gib(refusal.plain_bytes) if refusal.plain_bytes else None,
        "free_gib": _gib(refusal.free_bytes) if refusal.wanted_bytes else None,
        "est_bytes": refusal.wanted_bytes or None,
        "free_bytes": refusal.free_bytes if refusal.wanted_bytes else None,
    }


def _interval(value: Interval | None) -> dict[str, float] | None:
    if value is None:
        return None
    return {"low": round(value.low, 2), "best": round(value.best, 2), "high": round(value.high, 2)}


def _gib(size: float) -> float:
    return round(size / GIB, 3)
