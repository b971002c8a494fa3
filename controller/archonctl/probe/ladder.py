"""The ladder: transport, health, auth, model list, model id, one real generation. Each rung needs the one before."""

from __future__ import annotations

import json
import re
from functools import partial

from archonctl.probe.address import model_names
from archonctl.probe.answers import (
    Generation,
    judge_generation,
    listed_window,
    model_ids,
    read_generation,
    read_refusal,
)
from archonctl.probe.beside import among_others
from archonctl.probe.capacity_judge import ABORTED
from archonctl.probe.client import Answer
from archonctl.probe.engine import wait_idle
from archonctl.probe.faults import Fault, unseen
from archonctl.probe.jsonread import as_str, parse_json, pick
from archonctl.probe.patience import patiently
from archonctl.probe.session import Session
from archonctl.probe.tls import judge_certificate
from archonctl.probe.values import Leg

GENERATION_TOKENS = 32
_TRANSPORT_CODES = {
    "connect-refused",
    "connect-timeout",
    "connect-failed",
    "host-unresolved",
    "probe-out-of-resources",
    "address-invalid",
    "answer-not-http",
}
_NOT_READY = {"loading", "loading model", "starting", "stopping", "initializing"}
_LOADING = re.compile(r"\bloading\b|\bnot ready\b|\bstarting\b|warming up", re.I)
_WRONG_KEY = "archonctl-probe-not-the-key"
_QUESTION = "Reply with one short sentence."


async def transport(session: Session) -> Leg:
    """Something listens and speaks HTTP."""
    session.tell("transport", 0, 1, session.http.base)
    try:
        session.health = await session.http.get(session.api.health, session.limits.read_s, session.limits.body_bytes)
    except Fault as fault:
        if fault.code in _TRANSPORT_CODES:
            raise
        session.health = fault
    return Leg("transport", "pass", f"{session.http.base} is reached")


async def tls(session: Session) -> Leg:
    """The published address has a certificate that its clients accept."""
    where = session.http.where
    if not where.is_tls:
        said = "plain HTTP, as declared" if where.public != where.own else "no https address is declared"
        return Leg("tls", "skip", said, required=False)
    try:
        await session.http.get(session.api.models, session.limits.read_s, session.limits.body_bytes)
    except Fault as fault:
        if fault.code.startswith("tls-") or fault.code in _TRANSPORT_CODES:
            raise
    if session.http.certificate is None:
        raise unseen("tls-failed", f"{where.public} showed no certificate")
    return judge_certificate(session.http.certificate)


async def health(session: Session) -> Leg:
    """The engine calls itself healthy. Still loading is "no evidence": the caller may wait and ask again."""
    answer = session.health
    if isinstance(answer, Fault):
        raise answer
    if answer is None:
        raise unseen("", "the health path was not asked")
    said = session.http.excerpt(answer.body)
    if answer.status in session.api.loading_statuses:
        raise unseen("engine-loading", f"HTTP {answer.status}: the engine is not ready: {said}", evidence=said)
    must_be_healthy(session, answer)
    word = _health_word(answer)
    if word in _NOT_READY:
        raise unseen("engine-loading", f"the engine says that it is {word}", evidence=said)
    return Leg("health", "pass", f"{session.api.health} answers HTTP {answer.status}", evidence=said)


def must_be_healthy(session: Session, answer: Answer) -> None:
    """Any success will do: what a health path says beside it, if anything, is nobody's promise. Raises Fault."""
    if not 200 <= answer.status < 300:
        session.http.must_be_ok(answer, session.api.health)


def _health_word(answer: Answer) -> str:
    try:
        return as_str(pick(parse_json(answer.body), "status")).lower()
    except Fault:
        return ""  # no JSON: nothing is said


async def auth(session: Session) -> Leg:
    """The engine lets this probe look. A refused key says nothing of the contract: "no evidence"."""
    path = session.api.models
    try:
        answer = await patiently(lambda: session.http.get(path, session.limits.read_s, session.limits.body_bytes))
    except Fault as fault:
        session.model_answer = fault
        return Leg("auth", "pass", "nothing was refused")
    if answer.status in (401, 403):
        raise session.http.auth_fault(answer.status, path, session.http.excerpt(answer.body))
    session.model_answer = answer
    how = "the declared key is accepted" if session.http.has_key else "no key is asked for"
    return Leg("auth", "pass", how)


async def closed(session: Session) -> Leg:
    """Without the key, and with a wrong one, the engine answers nobody: an open endpoint is a finding.

    Asked with a real request, since model lists are open on many engines, and a malformed one may be refused for its
    form before anybody looks at a key.
    """
    if not session.http.has_key:
        return Leg("auth-closed", "skip", "no key is declared", required=False)
    path = session.api.chat or session.api.completions
    request: dict[str, object] = {"max_tokens": 1, "stream": False}
    if session.model:
        request["model"] = session.model
    question: dict[str, object] = {"prompt": "Hi"}
    if path == session.api.chat:
        question = {"messages": [{"role": "user", "content": "Hi"}]}
    body = json.dumps({**request, **question}).encode()
    for key, what in (("", "without a key"), (_WRONG_KEY, "with a wrong key")):
        answer = await session.http.post(path, body, session.limits.generation_s, session.limits.body_bytes, key=key)
        if answer.status == 200:
            raise Fault(
                "endpoint-open",
                f"{session.http.where.base(path)}{path} answered a request {what}, although service.api_key_file "
                "declares one",
                expected="HTTP 401",
                actual="HTTP 200",
                evidence=session.http.excerpt(answer.body),
            )
        if answer.status not in (401, 403):
            said = f"a request {what} got HTTP {answer.status}, which is neither an answer nor a refusal of the key"
            raise unseen("endpoint-open-unclear", said, expected="HTTP 401", actual=f"HTTP {answer.status}")
    return Leg("auth-closed", "pass", "without the key, and with a wrong one, nothing is answered", required=False)


async def models(session: Session) -> Leg:
    """The model list is one."""
    answer = session.model_answer
    if isinstance(answer, Fault):
        raise answer
    if answer is None:
        raise unseen("", "the model list was not asked for")
    listed = session.http.json(answer, session.api.models)
    said = session.http.excerpt(answer.body)
    refusal = read_refusal(listed)
    if refusal is not None:
        raise _error_in_200(session, session.api.models, refusal.message)
    ids = model_ids(listed)
    if ids is None:
        raise Fault(
            "models-invalid",
            f"{session.api.models} holds no list of models with ids",
            expected="data[].id",
            evidence=said,
        )
    session.model_list = listed
    names = model_names(session.endpoint, session.api.id_from_file)
    session.model = next((each for each in ids if each in names), ids[0])
    session.window = listed_window(listed, session.model)
    shown = session.http.excerpt(", ".join(ids), 200)
    return Leg("models", "pass", f"{len(ids):,} listed: {shown}", actual=shown)


async def model_id(session: Session) -> Leg:
    """The served id is the declared one."""
    ids = model_ids(session.model_list) or ()
    names = model_names(session.endpoint, session.api.id_from_file)
    from_file = session.api.id_from_file and not session.endpoint.model.served_name
    shown = session.http.excerpt(", ".join(ids), 200)
    if not ids:
        raise unseen("", "there is no model list")
    if not names:
        return Leg(
            "model-id",
            "skip",
            f"{shown} is served; the declaration names no model.served_name to compare it with",
            code="model-id-undeclared",
            actual=shown,
            required=False,
        )
    # An engine that names a model after its file says the path that it was given, which may be a relative one.
    found = next((each for each in ids if each in names or (from_file and each.rpartition("/")[2] in names)), None)
    if found is None:
        wanted = " or ".join(names)
        raise Fault(
            "model-id-mismatch",
            f"{shown} is served, {wanted} is declared",
            expected=wanted,
            actual=shown,
            evidence=shown,
        )
    return Leg("model-id", "pass", f"{found} is served as declared", expected=found, actual=found)


async def generation(session: Session) -> Leg:
    """One real, bounded answer. Reasoning text counts; an error inside a 200 does not.

    With ``--when-idle`` not even that is asked of an engine that others use.
    """
    if session.when_idle:
        await wait_idle(session)
    path, answer = await _ask(session)
    said = session.http.excerpt(answer.body)
    if answer.status == 503 and _LOADING.search(said):
        raise unseen("engine-loading", f"{path} answered HTTP 503: {said}", evidence=said)
    if answer.status not in (200, 401, 403, 429):
        raise Fault(
            "generation-failed",
            f"{path} answered HTTP {answer.status}: {said}",
            expected="HTTP 200",
            actual=f"HTTP {answer.status}",
            evidence=said,
        )
    value = session.http.json(answer, path)
    refusal = read_refusal(value)
    if refusal is not None:
        raise _error_in_200(session, path, refusal.message)
    found = read_generation(value)
    if found is None:
        raise Fault("generation-invalid", f"{path} answered JSON that is no completion", evidence=said)
    if found.finish_reason in ABORTED:
        raise Fault(
            "answer-aborted",
            f"{path}: the engine gave one short answer up: finish_reason {found.finish_reason}",
            expected="finish_reason length or stop",
            actual=f"finish_reason {found.finish_reason}",
            evidence=said,
        )
    why = judge_generation(found, GENERATION_TOKENS)
    if why:
        raise Fault("generation-empty", f"{path}: {why}", expected="text", actual="none", evidence=said)
    session.must_be_the_model(found.model)
    return Leg("generation", "pass", _describe(found), evidence=said)


def _describe(found: Generation) -> str:
    count = "some" if found.completion_tokens is None else f"{found.completion_tokens:,}"
    kind = (
        "text"
        if found.text
        else "reasoning text"
        if found.reasoning
        else "tool call"
        if found.tool_calls
        else "hidden text"
    )
    return f"{count} tokens of {kind}, finish_reason {found.finish_reason or 'not given'}"


async def _ask(session: Session) -> tuple[str, Answer]:
    """Chat; where that is refused (a base model without a template) the raw completion."""
    request: dict[str, object] = {"max_tokens": GENERATION_TOKENS, "stream": False}
    if session.model:
        request["model"] = session.model
    chat = {**request, "messages": [{"role": "user", "content": _QUESTION}]}
    paths = [
        (path, body)
        for path, body in ((session.api.chat, chat), (session.api.completions, {**request, "prompt": _QUESTION}))
        if path
    ]
    answer: Answer | None = None
    for path, body in paths:
        session.tell("generation", 0, GENERATION_TOKENS, path)
        ask = patiently(partial(_posted, session, path, json.dumps(body).encode()))
        first, answer = answer, await among_others(session, 1, session.limits.generation_s, ask)
        if answer.status not in (400, 404, 405, 422, 501):
            return path, answer
        answer = first or answer
    if answer is None:
        raise unseen("", "the engine has neither a chat nor a completions path")
    return paths[0][0], answer


async def _posted(session: Session, path: str, body: bytes) -> Answer:
    return await session.http.post(path, body, session.limits.generation_s, session.limits.body_bytes)


def _error_in_200(session: Session, path: str, message: str) -> Fault:
    said = session.http.excerpt(message)
    return Fault("error-in-200", f"{path} answered HTTP 200 with an error inside: {said}", evidence=said)
