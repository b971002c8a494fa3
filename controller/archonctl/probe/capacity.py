"""The capacity leg: full-height requests, all at once, all answered, nothing cut, and really held at once."""

from __future__ import annotations

import asyncio
import itertools
from functools import partial

from archonctl.probe.budget import Deadlines, answer_tokens, is_generous
from archonctl.probe.calibrate import calibrate, truncated
from archonctl.probe.engine import count_tokens, preemptions, wait_idle
from archonctl.probe.faults import Fault, unseen
from archonctl.probe.flight import Flight, Request, fly
from archonctl.probe.hold import Hold, judge_hold
from archonctl.probe.pace import Pace
from archonctl.probe.session import Session
from archonctl.probe.shape import Shape
from archonctl.probe.values import Depth, Leg

LEG = "capacity"
ATTEMPTS = 2
QUICK_ATTEMPTS = 6
QUICK_S = 3.0
"""A flight that is over so soon is repeated more often: a machine that looks away for a moment misses most of it."""
COUNTING_SLACK = 2
"""Engines differ by a token or two in what they count into a window (BOS, the last sampled token)."""
LEAST_SHARE = 0.95
"""Share of the contract's tokens that must be seen at one moment. The first sequence to end is at full height then and
the others are behind it by what they prefilled later; the exact pool is the ledger's word."""
_FIRST_PROMPT = 16
_LEAST_LATE_S = 0.05


async def capacity(session: Session, depth: Depth) -> Leg:
    """Run the leg at depth "admission" or "full". Raises Fault."""
    contract = session.contract
    if contract.tokens > session.limits.contract_tokens:
        raise unseen(
            "contract-too-large",
            f"{contract.tokens:,} tokens of prompts do not fit in this machine's memory",
            expected=f"at most {session.limits.contract_tokens:,} tokens",
            actual=f"{contract.tokens:,} tokens",
        )
    await wait_idle(session)
    shape, pace = await calibrate(session, LEG)
    session.facts["prefill_tokens_per_s"] = round(pace.tokens / pace.prefill_s, 1)
    session.facts["calibration_tokens"] = pace.tokens
    if depth == "admission":
        requests = await _requests(session, pace, 1, LEG)
        flight = await fly(session, shape, requests, _deadlines(session, pace, 1), LEG)
        _whole(session, flight)
        return Leg(LEG, "pass", f"{_contract(session)} were admitted and began to answer; not held at once")
    return await _held(session, shape, pace)


async def _held(session: Session, shape: Shape, pace: Pace) -> Leg:
    clock = asyncio.get_running_loop().time
    for attempt in itertools.count(1):
        answer = answer_tokens(session.contract, pace, attempt)
        requests = await _requests(session, pace, answer, LEG)
        await wait_idle(session)
        before, began = await preemptions(session), clock()
        flight = await fly(session, shape, requests, _deadlines(session, pace, answer), LEG)
        quick = clock() - began < QUICK_S
        _whole(session, flight)
        _preempted(before, await preemptions(session))
        hold = judge_hold(flight.ticks, {i: request.prompt_tokens for i, request in enumerate(requests)})
        session.facts |= {
            "prompt_tokens": sum(request.prompt_tokens for request in requests),
            "answer_tokens": sum(request.answer for request in requests),
            "held_at_once": hold.at_once,
            "held_tokens_at_least": hold.peak_tokens,
            "attempts": attempt,
        }
        fault = _not_held(session, shape, flight, hold, attempt)
        if fault is None:
            return _proven(session, flight, hold)
        most = QUICK_ATTEMPTS if quick else ATTEMPTS
        if fault.status == "fail" or _short_answers(flight) or attempt >= most:
            raise fault
    raise AssertionError("an endless loop ended")


def _proven(session: Session, flight: Flight, hold: Hold) -> Leg:
    contract, tokens = session.contract, session.contract.tokens
    lowest = min(request.prompt_tokens + flight.seen[i].tokens for i, request in enumerate(flight.requests))
    ended = f" (the shortest ended at {lowest:,})" if lowest < contract.len else ""
    return Leg(
        LEG,
        "pass",
        f"{_contract(session)} were held at once and answered{ended}: "
        f"at least {min(hold.peak_tokens, tokens):,} of {tokens:,} tokens at one moment",
        expected=f"{contract.seqs} at once",
        actual=f"{hold.at_once} at once",
    )


def _contract(session: Session) -> str:
    return f"{session.contract.seqs:,} x {session.contract.len:,} tokens"


def _deadlines(session: Session, pace: Pace, answer: int) -> Deadlines:
    return Deadlines.derive(session.contract, pace, answer, session.limits, session.deadline_s)


async def _requests(session: Session, pace: Pace, answer: int, leg: str) -> list[Request]:
    """Prompts that leave ``answer`` tokens, and answers that make up exactly what the prompts left."""
    contract = session.contract
    target = contract.len - answer - pace.overhead_tokens
    count = partial(count_tokens, session)
    requests: list[Request] = []
    rate = 0.0
    for index in range(contract.seqs):
        session.tell(leg, 0, contract.tokens, f"sizing prompt {index + 1} of {contract.seqs}")
        prompt = await session.prompts.sized(_FIRST_PROMPT + index, target, count, rate)
        rate = prompt.tokens / (prompt.text.count(" ") + 1)
        tokens = prompt.tokens + pace.overhead_tokens
        requests.append(Request(prompt, tokens, contract.len - tokens))
    return requests


def _whole(session: Session, flight: Flight) -> None:
    """Raise Fault if a prompt was cut or an answer was stopped below its height."""
    for index, request in enumerate(flight.requests):
        seen = flight.seen[index]
        if seen.prompt_tokens is None:
            raise unseen(
                "prompt-tokens-unreported",
                "the engine does not say how many prompt tokens it took: a cut prompt would look like a whole one",
                expected=f"{request.prompt_tokens:,} prompt tokens",
                actual="none",
            )
        if seen.prompt_tokens < request.prompt_tokens:
            raise truncated(request.prompt_tokens, seen.prompt_tokens)
        done = seen.completion_tokens
        if seen.finish_reason == "length" and done is not None and done < request.answer - COUNTING_SLACK:
            raise Fault(
                "answer-cut",
                f"a sequence was stopped at {request.prompt_tokens + done:,} tokens, "
                f"{request.height - request.prompt_tokens - done:,} below the contract's {session.contract.len:,}",
                expected=f"{request.height:,} tokens",
                actual=f"{request.prompt_tokens + done:,} tokens",
            )


def _preempted(before: float | None, after: float | None) -> None:
    if before is not None and after is not None and after > before:
        raise Fault(
            "preempted",
            f"the engine preempted {after - before:,.0f} sequences while the contract was held: the pool is too small",
            expected="0 preemptions",
            actual=f"{after - before:,.0f} preemptions",
        )


def _not_held(session: Session, shape: Shape, flight: Flight, hold: Hold, attempt: int) -> Fault | None:
    """Why the sequences were not held at once, or cannot be said to have been; None if they were."""
    seqs, wanted = session.contract.seqs, f"{session.contract.seqs} at once"
    visible = bool(shape.completions) or all(seen.counted for seen in flight.seen.values())
    if hold.stalled:
        code, moving = "sequence-stalled", seqs - len(hold.stalled)
        said = f"{len(hold.stalled)} of {seqs} sequences stood still until another one had ended"
        proven = visible
    elif hold.at_once < seqs:
        code, moving = "not-held-at-once", hold.at_once
        said = f"at most {hold.at_once} of {seqs} sequences were held at once, the others came when one had ended"
        proven = visible and _waited(session, flight, hold, attempt)
    else:
        return _too_low(session, flight, hold, wanted)
    if proven:
        return Fault(code, said, expected=wanted, actual=f"{moving} at once")
    return _unproven(f"all were admitted; as far as was seen, {said}{_short_answers(flight)}", wanted, hold)


def _too_low(session: Session, flight: Flight, hold: Hold, wanted: str) -> Fault | None:
    """What is missing although all were past their prefill at one moment."""
    if not hold.together:
        return _unproven("all were admitted, but were not seen to advance together", wanted, hold)
    if hold.peak_tokens < LEAST_SHARE * session.contract.tokens:
        height = f"{hold.peak_tokens:,} of {session.contract.tokens:,} tokens"
        return _unproven(f"all were held at once, but only at {height}{_short_answers(flight)}", wanted, hold)
    return None


def _waited(session: Session, flight: Flight, hold: Hold, attempt: int) -> bool:
    """True if a late sequence surely began only after another had ended.

    The early ones answered for so long that an engine with room would have let it in, and it came later than any
    doubt about the order in which this client looked.
    """
    pace = session.pace
    if pace is None or hold.late_s is None or any(seen.finish_reason != "length" for seen in flight.seen.values()):
        return False
    if hold.late_s < max(_LEAST_LATE_S, 3 * flight.lag_s):
        return False
    return is_generous(session.contract, pace, min(request.answer for request in flight.requests), attempt)


def _unproven(message: str, wanted: str, hold: Hold) -> Fault:
    return unseen("hold-unproven", message, expected=wanted, actual=f"{hold.at_once} at once")


def _short_answers(flight: Flight) -> str:
    early = sum(
        1
        for index, seen in flight.seen.items()
        if seen.finish_reason != "length" and seen.tokens < flight.requests[index].answer
    )
    return f" ({early} answers ended before their budget)" if early else ""
