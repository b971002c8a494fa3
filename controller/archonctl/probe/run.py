"""The probe: legs in order, each with its deadline, to one verdict."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace

import httpx

from archonctl.deployment.schema import Endpoint
from archonctl.engines.base import Api
from archonctl.ledger.values import BootLedger
from archonctl.probe import ladder
from archonctl.probe.address import base_url, read_key
from archonctl.probe.capacity import capacity
from archonctl.probe.client import Http
from archonctl.probe.faults import Fault, unseen
from archonctl.probe.jsonread import parse_json
from archonctl.probe.ledger_leg import ledger_leg
from archonctl.probe.limits import Limits
from archonctl.probe.refusal import refusal, window_of
from archonctl.probe.report import (
    EngineReport,
    judge_report,
    read_cache_config,
    read_props,
    read_server_info,
    read_sglang_info,
)
from archonctl.probe.session import OnProgress, Session
from archonctl.probe.values import Depth, Extras, Leg, Progress, Verdict
from archonctl.probe.verdict import judge

OnLeg = Callable[[Leg], None]
Check = Callable[[Session], Awaitable[Leg]]

NO_EXTRAS = Extras()
_SILENT = {"never-admitted", "deadline-reached", "connection-dropped", "connect-refused", "request-timeout"}
"""After these, one more request would only wait for nothing."""


def quiet(_event: Progress | Leg) -> None:
    """The callback that ignores everything."""


def probe_endpoint(
    endpoint: Endpoint,
    api: Api,
    ledger: BootLedger | None,
    *,
    legs: Depth = "full",
    deadline: float | None = None,
    on_progress: OnProgress = quiet,
    on_leg: OnLeg = quiet,
    stop_at_failure: bool = False,
    extras: Extras = NO_EXTRAS,
    limits: Limits | None = None,
    transport: httpx.AsyncBaseTransport | None = None,
) -> Verdict:
    """Probe a running engine and judge it.

    ``ledger`` is the reading of its boot log, or None where none was read. ``deadline`` bounds each capacity leg in
    seconds (None: derived from a measured pace); a deadline too short to tell slow from stuck gives "no evidence".
    ``on_leg`` gets each leg as soon as it is known; ``stop_at_failure`` skips the expensive legs once the contract is
    broken. Whatever the engine does ends as a leg, never as an exception; Ctrl-C closes every connection.

    Raises DeclarationError for an address or a key file that cannot be used.
    """
    bounds = limits or Limits()
    base, key = base_url(endpoint.service.listen), read_key(endpoint.service.api_key_file)

    async def run() -> Verdict:
        async with Http(base, key, bounds, transport) as http:
            session = Session(http, endpoint, api, ledger, bounds, on_progress, deadline, extras.when_idle)
            return await _Run(session, on_leg, legs, stop_at_failure).verdict()

    return asyncio.run(run())


class _Run:
    """One probe run: the legs so far, and which of them block others."""

    def __init__(self, session: Session, on_leg: OnLeg, depth: Depth, stop_at_failure: bool) -> None:
        self._session = session
        self._on_leg = on_leg
        self._depth = depth
        self._stop = stop_at_failure
        self._legs: dict[str, Leg] = {}

    async def verdict(self) -> Verdict:
        """Run every leg of the depth."""
        session, started = self._session, time.monotonic()
        self._add(ledger_leg(session.ledger, session.contract, session.endpoint.engine.kind))
        await self._leg("transport", ladder.transport, ())
        await self._leg("health", ladder.health, ("transport",))
        await self._leg("auth", ladder.auth, ("health",))
        await self._leg("models", ladder.models, ("auth",))
        await self._leg("model-id", ladder.model_id, ("models",))
        await self._leg("engine-report", _report, ("auth",), required=False)
        await self._leg("generation", ladder.generation, ("auth",))
        if self._depth != "ledger":
            await self._leg("capacity", lambda s: capacity(s, self._depth), ("generation",), costly=True)
            needs = ("generation", "capacity") if self._legs["capacity"].code in _SILENT else ("generation",)
            await self._leg("refusal", refusal, needs, costly=True)
            await self._leg("alive", _alive, ("generation",))
        self._facts(time.monotonic() - started)
        return judge(tuple(self._legs.values()), session.facts)

    async def _leg(
        self, leg_id: str, check: Check, needs: tuple[str, ...], *, required: bool = True, costly: bool = False
    ) -> None:
        blocked = next((each for each in needs if self._legs[each].status != "pass"), "")
        broken = next((leg.id for leg in self._legs.values() if leg.status == "fail"), "")
        if blocked:
            self._add(Leg(leg_id, "skip", f"not run: {blocked} did not pass", required=required))
            return
        if costly and self._stop and broken:
            self._add(Leg(leg_id, "skip", f"not run: {broken} failed already", required=required))
            return
        started = time.monotonic()
        try:
            leg = await check(self._session)
        except Fault as fault:
            leg = fault.leg(leg_id, required=required)
            if not required:
                leg = replace(leg, status="no evidence")
        self._add(replace(leg, seconds=time.monotonic() - started))

    def _add(self, leg: Leg) -> None:
        self._legs[leg.id] = leg
        self._on_leg(leg)

    def _facts(self, seconds: float) -> None:
        session = self._session
        window, ledger = window_of(session), session.ledger
        kv = ledger.get("kv_tokens") if ledger else None
        found: dict[str, int | float | str | None] = {
            "depth": self._depth,
            "seconds": round(seconds, 3),
            "requests": session.http.requests,
            "contract_tokens": session.contract.tokens,
            "model": session.http.excerpt(session.model, 200) or None,
            "window_tokens": window,
            "kv_tokens_logged": int(kv.low) if kv else None,
            "engine_version": (session.report.version if session.report else "") or None,
        }
        session.facts |= {name: value for name, value in found.items() if value is not None}


async def _report(session: Session) -> Leg:
    """What the engine itself says of its capacity, where it says anything."""
    api, path = session.api, session.api.report
    if not path or not api.report_format:
        return Leg("engine-report", "skip", "this engine reports no capacity", code="report-silent", required=False)
    answer = await session.http.get(path, session.limits.read_s, session.limits.body_bytes)
    if answer.status in (401, 403):
        raise session.http.auth_fault(answer.status, path, session.http.excerpt(answer.body))
    if answer.status != 200:
        said = f"{path} answered HTTP {answer.status}"
        return Leg("engine-report", "skip", said, code="report-silent", required=False)
    session.report = _clean(session, _read(session, answer.body, answer.content_type))
    return judge_report(session.report, session.contract, session.ledger, session.endpoint.model.path)


def _read(session: Session, body: bytes, content_type: str) -> EngineReport:
    path, form = session.api.report, session.api.report_format
    if form == "vllm-metrics":
        return read_cache_config(body.decode("utf-8", "replace"), path)
    session.http.must_be_json(content_type, path, body)
    value = parse_json(body, session.http.excerpt(body))
    read = {"llamacpp-props": read_props, "sglang-server-info": read_sglang_info}.get(form, read_server_info)
    return read(value, path)


def _clean(session: Session, report: EngineReport) -> EngineReport:
    """Strings of the engine, fit to be shown."""
    clean = session.http.excerpt
    return replace(report, model_path=clean(report.model_path), version=clean(report.version, 80))


async def _alive(session: Session) -> Leg:
    """The engine is still there after what it was asked."""
    try:
        answer = await session.http.get(session.api.health, session.limits.read_s, session.limits.body_bytes)
        session.http.must_be_ok(answer, session.api.health)
    except Fault as fault:
        if fault.status == "no evidence":
            raise
        raise Fault(
            "engine-died",
            f"healthy before the full-height requests, not after: {fault.message}",
            expected="HTTP 200",
            actual=fault.actual or fault.code,
            evidence=fault.evidence,
        ) from fault
    if answer.status in session.api.loading_statuses:
        raise unseen("engine-loading", "the engine is loading again")
    return Leg("alive", "pass", "still healthy afterwards")
