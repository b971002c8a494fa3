"""The refusal leg: a request over the window is refused cleanly: not cut in silence, not left hanging, no crash."""

from __future__ import annotations

import asyncio
from functools import partial

from archonctl.probe.answers import read_generation, read_refusal
from archonctl.probe.budget import REFUSAL_OVER
from archonctl.probe.calibrate import calibrate
from archonctl.probe.client import Answer
from archonctl.probe.engine import count_tokens
from archonctl.probe.faults import Fault, unseen
from archonctl.probe.jsonread import parse_json
from archonctl.probe.patience import AGAIN, patiently
from archonctl.probe.session import Session
from archonctl.probe.values import Leg

LEG = "refusal"
_PROMPT = 7
_CLEAN = frozenset({400, 413, 422})


def window_of(session: Session) -> int | None:
    """The window of one sequence, from the engine's report, its model list or tokenizer, or its boot log."""
    report = session.report.window if session.report else None
    logged = session.ledger.get("n_ctx_slot") if session.ledger else None
    return report or session.window or (int(logged.high) if logged else None)


async def refusal(session: Session) -> Leg:
    """Send one prompt over the window. Raises Fault."""
    shape, pace = await calibrate(session, LEG)
    window = window_of(session)
    if window is None:
        raise unseen("window-unknown", "the engine states no window: a request over it cannot be sized")
    if window > session.limits.contract_tokens:
        raise unseen(
            "window-unknown", f"a request over a window of {window:,} tokens does not fit in this machine's memory"
        )
    target = max(window, session.contract.len) + REFUSAL_OVER
    session.tell(LEG, 0, target, f"sizing a prompt of {target:,} tokens")
    prompt = await session.prompts.sized(_PROMPT, target, partial(count_tokens, session))
    bound_s = session.deadline_s or min(
        session.limits.cap_s, max(session.limits.floor_s, pace.prefill_bound_s(prompt.tokens))
    )
    body = shape.body(prompt.text, 1, stream=False)
    session.tell(LEG, 0, prompt.tokens, f"{prompt.tokens:,} tokens over a window of {window:,}")
    sent = asyncio.get_running_loop().time()
    try:
        answer = await patiently(lambda: session.http.post(shape.path, body, bound_s, session.limits.body_bytes))
    except Fault as fault:
        if fault.code != "request-timeout":
            raise
        if bound_s < session.limits.hang_s:
            raise unseen("deadline-reached", f"{fault.message}: too short a deadline to call that a hang") from None
        raise Fault(
            "over-window-hang",
            f"{prompt.tokens:,} tokens over a window of {window:,} were neither refused nor answered in {bound_s:g} s",
            expected="HTTP 400",
            actual=f"nothing in {bound_s:g} s",
        ) from None
    seconds = asyncio.get_running_loop().time() - sent
    return _judge(session, answer, prompt.tokens, window, seconds)


def _judge(session: Session, answer: Answer, tokens: int, window: int, seconds: float) -> Leg:
    said = session.http.excerpt(answer.body)
    what = f"{tokens:,} tokens over a window of {window:,}"
    if answer.status in (401, 403):
        raise session.http.auth_fault(answer.status, what, said)
    if answer.status == 200:
        raise _accepted(answer, tokens, what, said)
    if answer.status >= 500 and answer.status not in AGAIN:
        raise Fault(
            "over-window-server-error",
            f"{what}: HTTP {answer.status} instead of a refusal: {said}",
            expected="HTTP 400",
            actual=f"HTTP {answer.status}",
            evidence=said,
        )
    clean = answer.status in (_CLEAN | session.api.over_window_statuses) - AGAIN
    error = _error(answer) if clean else None
    if error is None:
        raise unseen(
            "over-window-unclear",
            f"{what}: HTTP {answer.status}, which is no refusal by the engine: {said}",
            expected="HTTP 400 with an error object",
            actual=f"HTTP {answer.status}",
            evidence=said,
        )
    return Leg(
        LEG,
        "pass",
        f"{what}: refused with HTTP {answer.status} in {seconds:.1f} s",
        expected="HTTP 400",
        actual=f"HTTP {answer.status}",
        evidence=said,
    )


def _error(answer: Answer) -> str | None:
    try:
        found = read_refusal(parse_json(answer.body))
    except Fault:
        return None
    return found.message if found else None


def _accepted(answer: Answer, tokens: int, what: str, said: str) -> Fault:
    """200 to what cannot fit: an error inside, a prompt cut in silence, or a window that is not the stated one."""
    try:
        value = parse_json(answer.body)
    except Fault:
        value = None
    error = read_refusal(value)
    if error is not None:
        return Fault("error-in-200", f"{what}: HTTP 200 with an error inside: {said}", actual="HTTP 200", evidence=said)
    generation = read_generation(value)
    counted = generation.prompt_tokens if generation else None
    if counted is not None and counted < tokens:
        why = f"the engine worked on {counted:,} of them and says nothing of the rest"
    else:
        why = "it was answered, so it was cut in silence or the stated window is not the real one"
    return Fault(
        "over-window-accepted",
        f"{what}: HTTP 200: {why}",
        expected="HTTP 400",
        actual="HTTP 200" if counted is None else f"HTTP 200, {counted:,} prompt tokens",
        evidence=said,
    )
