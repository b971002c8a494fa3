"""Side questions to the engine: tokens of a text, requests that run now, preemptions so far."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

from archonctl.probe.faults import Fault, unseen
from archonctl.probe.jsonread import as_int, parse_json, pick
from archonctl.probe.metrics import PREEMPTION_SAMPLES, Load, load_of_json, load_of_metrics, samples
from archonctl.probe.patience import patiently
from archonctl.probe.session import Session
from archonctl.probe.shape import Shape

LINGERS_S = 2.0
"""An engine may still count a request for a moment after its answer has ended."""
_STALE_S, _STEP_S = 1.0, 5.0
"""A gauge that does not fall for so long may be of a step long ago; how long one token may take to renew it."""
_STEPPING = 15
_LATE = "request-timeout"
_GONE = {"connection-dropped", "connect-refused", "connect-failed", "connect-timeout", _LATE}


async def count_tokens(session: Session, text: str) -> int:
    """Tokens of ``text`` by the engine's own tokenizer, BOS included where the engine adds one.

    Raises Fault ``tokenize-unusable`` ("no evidence": an engine without a tokenizer path may be sound).
    """
    path = session.api.tokenize
    if not path:
        raise unseen("tokenize-unusable", "the engine has no tokenize path: prompts cannot be sized")
    body = json.dumps({session.api.tokenize_field: text, **session.api.tokenize_extra}).encode()
    try:
        bound = session.limits.body_bytes + 16 * len(body)
        answer = await patiently(lambda: session.http.post(path, body, session.limits.tokenize_s, bound))
        value = session.http.json(answer, path)
    except Fault as fault:
        if fault.status == "no evidence":
            raise
        raise unseen(
            "tokenize-unusable", f"prompts cannot be sized: {fault.message}", evidence=fault.evidence
        ) from fault
    tokens = pick(value, "tokens")
    listed = len(tokens) if isinstance(tokens, list) else None
    counted = as_int(pick(value, "count"))
    if not (listed or counted) or (listed is not None and counted is not None and listed != counted):
        raise unseen(
            "tokenize-unusable",
            f"{path} counts no tokens in a text of {len(text):,} characters (tokens {listed}, count {counted})",
            evidence=session.http.excerpt(answer.body),
        )
    window = as_int(pick(value, "max_model_len"))
    session.window = session.window or window or None
    return counted or listed or 0


async def load(session: Session) -> Load | None:
    """Requests that run or wait now; None where the engine does not say."""
    text = await read_text(session, session.api.busy)
    if text is None:
        return None
    if not text.lstrip().startswith(("[", "{")):
        return load_of_metrics(text)
    try:
        found = load_of_json(parse_json(text.encode()))
    except Fault:
        return None
    if found is None or found.waiting is not None or session.no_queue_metric:
        return found
    told = load_of_metrics(await read_text(session, session.api.metrics) or "")
    session.no_queue_metric = told is None
    return replace(found, waiting=told.waiting if told else None)


async def preemptions(session: Session) -> float | None:
    """Preemptions or retractions so far; None where the engine does not count them, or is too busy to tell."""
    try:
        text = await read_text(session, session.api.metrics)
    except Fault as fault:
        if fault.code != _LATE:
            raise
        return None
    return None if text is None else samples(text, PREEMPTION_SAMPLES)


async def _load_or_busy(session: Session) -> Load | None:
    """The load; one request where the engine is too busy to tell (the ik fork answers nothing while it reads a
    prompt: ik_llama.cpp issue 1210)."""
    try:
        return await load(session)
    except Fault as fault:
        if fault.code != _LATE:
            raise
        return Load(1, None)


async def read_text(session: Session, path: str) -> str | None:
    """A side path as text; None where it is not served (llama.cpp answers 501 without ``--metrics``)."""
    if not path:
        return None
    try:
        answer = await session.http.get(path, session.limits.read_s, session.limits.body_bytes)
    except Fault as fault:
        if fault.code in _GONE:
            raise
        return None
    return answer.body.decode("utf-8", "replace") if answer.status == 200 else None


async def wait_idle(session: Session) -> None:
    """Wait until no request runs. Raises Fault ``engine-busy``: others' requests would pass for a lack of room.

    With ``--when-idle`` the wait is long, and the engine must be seen idle for a while and not for one look.
    """
    clock = asyncio.get_running_loop().time
    limits, patient = session.limits, session.when_idle
    began, idle_since, stepped = clock(), None, False
    while True:
        now = await _load_or_busy(session)
        if now is None or not now.total:
            idle_since = clock() if idle_since is None else idle_since
            if not patient or now is None or clock() - idle_since >= limits.settled_s:
                return
        else:
            idle_since = None
            session.tell("capacity", 0, session.contract.tokens, f"waiting for {now.total:,} requests of others to end")
        if clock() - began >= (limits.patient_s if patient else limits.idle_s):
            raise _not_idle(now.total if now else 0)
        if now is not None and now.gauge and now.total and not stepped and clock() - began >= _STALE_S:
            await _step(session)
            stepped = True
        else:
            await asyncio.sleep(min(0.25, limits.idle_s))


def _not_idle(running: int) -> Fault:
    return unseen(
        "engine-busy",
        f"{running:,} requests run or wait on the engine: the contract is only probed on an idle one",
        expected="0 requests",
        actual=f"{running:,} requests",
    )


async def _step(session: Session) -> None:
    """Make an engine that is idle take a step, so that its gauges are written: one token, and no word on what of it."""
    shape = session.shape or Shape.first(session.api, session.model)
    body = shape.body(session.prompts.text(_STEPPING, 2), 1, stream=False)
    try:
        await session.http.post(shape.path, body, _STEP_S, session.limits.body_bytes)
    except Fault:
        return  # refused in this form, or nothing came in time: what the gauge says next decides


async def must_be_alone(session: Session) -> None:
    """After a measurement, with no request of ours open. Raises Fault ``engine-busy`` if somebody else's runs: the
    figures are of both then. A request that has just ended may still be counted for a moment."""
    clock = asyncio.get_running_loop().time
    end, stepped = clock() + LINGERS_S, False
    while (now := await _load_or_busy(session)) is not None and now.total:
        if clock() < end:
            await asyncio.sleep(0.1)
        elif now.gauge and not stepped:
            await _step(session)
            stepped = True
        else:
            raise unseen(
                "engine-busy",
                f"{now.total:,} requests of others run: what was measured is not of the engine alone",
                expected="0 requests of others",
                actual=f"{now.total:,} requests",
            )
