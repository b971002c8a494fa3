"""What the probe's tests share: short limits, a fake engine's HTTP surface, a boot ledger, one call."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from archonctl.deployment.schema import Contract, Endpoint, Engine, ModelRef, Service
from archonctl.engines.base import Api
from archonctl.ledger.values import BootLedger, Reading
from archonctl.memory.interval import Interval
from archonctl.probe.limits import Limits
from archonctl.probe.run import probe_endpoint
from archonctl.probe.values import Leg, Verdict
from support.lying_server import MODEL, LyingServer

API = Api(
    health="/health",
    models="/v1/models",
    tokenize="/tokenize",
    completions="/v1/completions",
    chat="/v1/chat/completions",
    tokenize_field="content",
    checks_model_name=False,
    tokenize_extra={"add_special": True},
    completion_extra={"cache_prompt": False},
    report="/props",
    report_format="llamacpp-props",
    busy="/slots",
)

SHORT = Limits(
    connect_s=2.0,
    read_s=1.0,
    tokenize_s=2.0,
    generation_s=1.5,
    calibrate_s=3.0,
    calibrate_s_per_token=0.0,
    floor_s=2.0,
    cap_s=20.0,
    hang_s=0.5,
    idle_s=1.0,
    body_bytes=256 * 1024,
    stream_bytes=1024 * 1024,
)
"""For what shall be late: on a busy machine a sound engine may be later than that too."""
ROOMY = replace(
    SHORT,
    connect_s=60.0,
    read_s=60.0,
    tokenize_s=60.0,
    generation_s=60.0,
    calibrate_s=60.0,
    floor_s=60.0,
    cap_s=120.0,
    idle_s=60.0,
)
"""For everything else."""


def limits_for(code: str) -> Limits:
    """To find a fault that earns this code."""
    return SHORT if code in ("request-timeout", "never-admitted", "engine-busy", "deadline-reached") else ROOMY


def boot_ledger(kv_tokens: float, n_slots: int, n_ctx_slot: int, **more: Any) -> BootLedger:
    """A reading of a boot log with exact figures."""

    def reading(value: float) -> Reading:
        return Reading(Interval.exact(value, "log"), 7, f"... = {value}")

    figures = {
        "kv_tokens": reading(kv_tokens),
        "n_slots": reading(n_slots),
        "n_ctx_slot": reading(n_ctx_slot),
    }
    return BootLedger("llamacpp", figures=figures, lines_read=175, **more)


def endpoint(listen: str, seqs: int, length: int, served_name: str = MODEL, **service: Any) -> Endpoint:
    """A declaration of the least that a probe needs."""
    return Endpoint(
        contract=Contract(seqs=seqs, len=length),
        engine=Engine(kind="llamacpp"),
        model=ModelRef(path="/models/tiny.gguf", served_name=served_name),
        service=Service(listen=listen, **service),
    )


def probe(
    server: LyingServer,
    *,
    seqs: int = 2,
    length: int = 400,
    ledger: BootLedger | str | None = "sound",
    limits: Limits = ROOMY,
    served_name: str = MODEL,
    key_file: str = "",
    api: Api = API,
    **options: Any,
) -> Verdict:
    """Probe a lying server; the boot ledger says that all is well unless one is given."""
    slots = 64 if "/props" in server.engine.override else server.engine.slots
    found = boot_ledger(1_000_000, slots, server.engine.window) if ledger == "sound" else ledger
    assert found is None or isinstance(found, BootLedger)
    declared = endpoint(server.listen, seqs, length, served_name, api_key_file=key_file)
    return probe_endpoint(declared, api, found, limits=limits, **options)


def leg(verdict: Verdict, leg_id: str) -> Leg:
    """One leg of a verdict."""
    return next(each for each in verdict.legs if each.id == leg_id)


def told(verdict: Verdict) -> str:
    """All legs, for a failed assertion."""
    return "\n".join(f"{each.id} {each.status} {each.code} {each.message}" for each in verdict.legs)
