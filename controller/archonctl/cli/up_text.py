"""The end of ``up`` for people and for tools."""

from __future__ import annotations

from typing import Any

from archonctl.cli.output import Output
from archonctl.cli.verdict_text import leg_text, verdict_text
from archonctl.deployment.schema import Contract
from archonctl.service.exits import ExitStatus
from archonctl.service.values import UpResult


def up_text(result: UpResult, contract: Contract, out: Output) -> str:
    """Legs, the word, and the plan's figure beside the ledger's."""
    lines = [leg_text(leg, out) for leg in result.verdict.legs]
    lines.append(verdict_text(result.endpoint, contract, result.verdict, out))
    planned, logged = result.plan.forecast.kv_tokens, result.ledger.get("kv_tokens")
    if planned is not None and logged is not None:
        same = "as planned" if planned.contains(logged.best) else f"{int(planned.best):,} were planned"
        lines.append(f"  the boot ledger shows {int(logged.best):,} tokens, {same}")
    return "\n".join(lines)


def up_json(result: UpResult) -> dict[str, Any]:
    """One start under its published schema, ``archonctl.up/1``: plan, ledger and probe as their own verbs give them."""
    from archonctl.ledger.as_json import ledger_json
    from archonctl.plan.as_json import plan_json
    from archonctl.probe.verdict import verdict_json

    host, port = result.running.host.strip("[]"), result.running.port
    return {
        "schema": "archonctl.up/1",
        "endpoint": result.endpoint,
        "verdict": result.verdict.word,
        "reasons": list(result.verdict.reasons),
        "release": result.release,
        "engine": {
            "mode": result.running.mode,
            "pid": result.running.pid,
            "unit": result.running.unit or None,
            "listen": f"[{host}]:{port}" if ":" in host else f"{host}:{port}",
            "log": result.running.log or None,
            "ended": result.ended,
            "exit": _exit(result.exit) if result.exit else None,
        },
        "boot_seconds": round(result.boot.seconds, 3),
        "plan": plan_json(result.plan),
        "ledger": ledger_json(result.ledger),
        "probe": verdict_json(result.verdict, result.endpoint),
    }


def _exit(status: ExitStatus) -> dict[str, int | str | None]:
    return {"code": status.code, "signal": status.signal, "text": status.words}
