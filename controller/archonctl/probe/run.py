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
from archonctl.probe.address import addresses, read_key
from archonctl.probe.capacity import capacity
from archonctl.probe.client import Http
from archonctl.probe.engine import read_text
from archonctl.probe.faults import Fault
from archonctl.probe.interference import interference
from archonctl.probe.jsonread import parse_json
from archonctl.probe.ledger_leg import ledger_leg, replicas_of
from archonctl.probe.limits import Limits
from archonctl.probe.patience import patiently
from archonctl.probe.predictions import foretold, prefill_sizes, score_all
from archonctl.probe.prefill import prefill
from archonctl.probe.recall import recall
from archonctl.probe.refusal import refusal, window_of
from archonctl.probe.report import (
    EngineReport,
    judge_report,
    read_cache_config,
    read_props,
    read_server_info,
    read_sglang_info,
    report_json,
    served_tokens,
    with_slots,
)
from archonctl.probe.session import OnProgress, Session
from archonctl.probe.values import Depth, Extras, Leg, Progress, Verdict
from archonctl.probe.verdict import judge

OnLeg = Callable[[Leg], None]
Check = Callable[[Session], Awaitable[Leg]]

NO_EXTRAS = Extras()
_SILENT = {
    "never-admitted",
    "deadline-reached",
    "connection-dropped",
    "connect-refused",
    "request-timeout",
    "engine-busy",
}
"""After these, one more request would only wait for nothing, or harm whoever uses the engine."""


_FINDINGS = {"endpoint-open", "recall-lost", "prompt-truncated"}
"""Failures of a leg that is not required and counts all the same; the others of such a leg are "no evidence"."""
_PROOFS = 8


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
    log_name: str = "the boot log",
    identity: Leg | None = None,
    limits: Limits | None = None,
    transport: httpx.AsyncBaseTransport | None = None,
) -> Verdict:
    """Probe a running engine and judge it.

    ``ledger`` is the reading of its boot log, or None where none was read. ``deadline`` bounds each capacity leg in
    seconds (None: derived from a measured pace); a deadline too short to tell slow from stuck gives "no evidence".
    ``on_leg`` gets each leg as soon as it is known; ``stop_at_failure`` skips the expensive legs once the contract is
    broken. ``extras`` are legs that run only if asked for; ``identity`` is the leg about the process, judged by whoever
    may look into it; ``log_name`` says where the ledger was read.

    Whatever the engine does ends as a leg, never as an exception; Ctrl-C closes every connection.

    Raises DeclarationError for an address or a key file that cannot be used.
    """
    bounds = limits or Limits()
    where, key = addresses(endpoint.service), read_key(endpoint.service.api_key_file)

    async def run() -> Verdict:
        async with Http(where, key, bounds, transport) as http:
            http.generating = frozenset({api.completions, api.chat})
            session = Session(http, endpoint, api, ledger, bounds, on_progress, deadline, extras.when_idle, log_name)
            return await _Run(session, on_leg, legs, stop_at_failure, extras, identity).verdict()

    return asyncio.run(run())


class _Run:
    """One probe run: the legs so far, and which of them block others."""

    def __init__(
        self,
        session: Session,
        on_leg: OnLeg,
        depth: Depth,
        stop_at_failure: bool,
        extras: Extras,
        identity: Leg | None,
    ) -> None:
        self._session = session
        self._on_leg = on_leg
        self._depth = depth
        self._stop = stop_at_failure
        self._extras = extras
        self._identity = identity
        self._legs: dict[str, Leg] = {}

    async def verdict(self) -> Verdict:
        """Run every leg of the depth."""
        session, started = self._session, time.monotonic()
        self._add(self._ledger())
        if self._identity is not None:
            self._add(self._identity)
        await self._leg("transport", ladder.transport, ())
        await self._leg("tls", ladder.tls, ("transport",), required=session.http.where.is_tls)
        await self._leg("health", ladder.health, ("transport", "tls"))
        await self._leg("auth", ladder.auth, ("health",))
        await self._leg("models", ladder.models, ("auth",))
        await self._leg("model-id", ladder.model_id, ("models",))
        await self._leg("engine-report", _report, ("auth",), required=False)
        self._settle_ledger()
        await self._leg("generation", ladder.generation, ("auth",))
        await self._leg("auth-closed", ladder.closed, ("generation",), required=False)
        if self._depth != "ledger":
            await self._leg("capacity", lambda s: capacity(s, self._depth), ("generation",), costly=True)
            needs = ("generation", "capacity") if self._legs["capacity"].code in _SILENT else ("generation",)
            await self._leg("refusal", refusal, needs, costly=True)
            await self._more(needs)
            await self._leg("alive", _alive, ("generation",))
        self._facts(time.monotonic() - started)
        legs = tuple(self._legs.values())
        predictions = score_all(session.endpoint.predict, legs, session.ledger)
        return replace(judge(legs, session.facts), predictions=predictions)

    async def _more(self, needs: tuple[str, ...]) -> None:
        """Legs that were asked for by name, or by a prediction."""
        if prefill_sizes(self._session.endpoint.predict):
            await self._leg("prefill", prefill, needs, required=False, costly=True)
        if self._extras.interference or foretold(self._session.endpoint.predict, "interference"):
            await self._leg("interference", interference, needs, required=False, costly=True)
        if self._extras.recall:
            await self._leg("recall", recall, needs, required=False, costly=True)

    def _ledger(self) -> Leg:
        session = self._session
        endpoint, where = session.endpoint, session.log_name
        blocks = session.report.pool_blocks if session.report else None
        return ledger_leg(session.ledger, endpoint.contract, endpoint.engine.kind, where, replicas_of(endpoint), blocks)

    def _settle_ledger(self) -> None:
        """Judge the log again where what the engine says of itself tells what the log alone left open."""
        if self._legs["engine-report"].status == "pass" and (leg := self._ledger()) != self._legs["ledger"]:
            self._add(leg)

    async def _leg(
        self, leg_id: str, check: Check, needs: tuple[str, ...], *, required: bool = True, costly: bool = False
    ) -> None:
        blocked = next((each for each in needs if not _lets_on(self._legs[each])), "")
        broken = next((leg.id for leg in self._legs.values() if leg.status == "fail"), "")
        if blocked:
            self._add(Leg(leg_id, "skip", f"not run: {blocked} did not pass", required=required))
            return
        if costly and self._stop and broken:
            self._add(Leg(leg_id, "skip", f"not run: {broken} failed already", required=required))
            return
        started, http = time.monotonic(), self._session.http
        http.exchanges.clear()
        try:
            leg = await check(self._session)
        except Fault as fault:
            if (task := asyncio.current_task()) and task.cancelling():
                # Ctrl-C closed the connections; a stream that failed of it comes up instead of the cancellation
                raise asyncio.CancelledError from None
            leg = fault.leg(leg_id, required=required)
            if not required and fault.code not in _FINDINGS:
                leg = replace(leg, status="no evidence")
        seen = tuple(http.exchanges.values())[-_PROOFS:]
        self._add(replace(leg, seconds=time.monotonic() - started, proof=leg.proof + seen))

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


def _lets_on(leg: Leg) -> bool:
    """True if the legs that need this one may run: it passed, or there was nothing for it to check."""
    return leg.status == "pass" or (leg.status == "skip" and not leg.required)


async def _report(session: Session) -> Leg:
    """What the engine itself says of its capacity, where it says anything: else the window of its model list."""
    api, path = session.api, session.api.report
    if not path or not api.report_format:
        return _listed(session, "this engine reports no capacity")
    answer = await session.http.get(path, session.limits.read_s, session.limits.body_bytes)
    if answer.status in (401, 403):
        raise session.http.auth_fault(answer.status, path, session.http.excerpt(answer.body))
    if answer.status != 200:
        return _listed(session, f"{path} answered HTTP {answer.status}")
    report = _clean(session, _read(session, answer.body, answer.content_type))
    return _reported(session, await _beside(session, report))


def _listed(session: Session, otherwise: str) -> Leg:
    if session.window is None:
        return Leg("engine-report", "skip", otherwise, code="report-silent", required=False)
    return _reported(session, EngineReport(session.api.models, window=session.window))


def _reported(session: Session, report: EngineReport) -> Leg:
    session.report = report
    leg = judge_report(report, session.contract, session.ledger, session.endpoint.model.path)
    return replace(leg, observed=report_json(report))


def _read(session: Session, body: bytes, content_type: str) -> EngineReport:
    path, form = session.api.report, session.api.report_format
    if form == "vllm-metrics":
        return read_cache_config(body.decode("utf-8", "replace"), path)
    value = session.http.read_json(content_type, body, path)
    read = {"llamacpp-props": read_props, "sglang-server-info": read_sglang_info}.get(form, read_server_info)
    return read(value, path)


async def _beside(session: Session, report: EngineReport) -> EngineReport:
    """The report with what another path adds to it: llama.cpp's slots, vLLM's window from its model list."""
    if session.api.report_format == "vllm-metrics":
        named = f"{report.source} and {session.api.models}" if session.window else report.source
        return served_tokens(replace(report, source=named), session.window)
    if session.api.report_format != "llamacpp-props" or session.api.busy != "/slots":
        return report
    text = await read_text(session, session.api.busy)
    try:
        slots = parse_json(text.encode()) if text else None
    except Fault:
        slots = None  # the path that matters here is /props; what /slots says beside it is not promised
    return report if report.says_nothing else with_slots(report, slots)


def _clean(session: Session, report: EngineReport) -> EngineReport:
    """Strings of the engine, fit to be shown."""
    clean = session.http.excerpt
    return replace(report, model_path=clean(report.model_path), version=clean(report.version, 80))


async def _alive(session: Session) -> Leg:
    """The engine is still there after what it was asked. One that loads again was started again: it had died."""
    limits = session.limits
    try:
        answer = await patiently(lambda: session.http.get(session.api.health, limits.read_s, limits.body_bytes))
        ladder.must_be_healthy(session, answer)
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
    return Leg("alive", "pass", "still healthy afterwards")
