"""The capacity leg: full-height requests, all at once, all answered, nothing cut, and really held at once."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from archonctl.probe.budget import Deadlines, answer_tokens, is_generous, shorter
from archonctl.probe.calibrate import calibrate
from archonctl.probe.capacity_judge import Answered, Flown, flown_json, judge_flown, short_answers
from archonctl.probe.engine import count_tokens, preemptions, wait_idle
from archonctl.probe.faults import Fault, unseen
from archonctl.probe.flight import Flight, Request, fly
from archonctl.probe.hold import Hold, judge_hold
from archonctl.probe.pace import Pace
from archonctl.probe.patience import TRIES, pause_s
from archonctl.probe.session import Session
from archonctl.probe.shape import Shape
from archonctl.probe.values import Depth, Leg

LEG = "capacity"
ATTEMPTS = 2
QUICK_ATTEMPTS = 6
QUICK_S = 3.0
"""A flight that is over so soon is repeated more often: a machine that looks away for a moment misses most of it."""
_FIRST_PROMPT = 16
_PASSING = {"engine-busy", "queue-full"}
"""Faults that may be of a moment only. An idle engine that refuses again and again has no room."""
T = TypeVar("T")


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
    return await (_admitted if depth == "admission" else _held)(session, shape, pace)


async def _undisturbed(session: Session, fly_once: Callable[[], Awaitable[T]]) -> T:
    """What one flight on an idle engine gives. One that others disturbed, or that was refused for a moment, is flown
    again a few times, each time after waiting for the engine to be idle: what is seen of an engine by itself counts.

    With ``--when-idle`` it is given up the moment that others come. Raises Fault.
    """
    for flown in itertools.count(1):
        await wait_idle(session)
        try:
            return await fly_once()
        except Fault as fault:
            if fault.code not in _PASSING or (session.when_idle and fault.code == "engine-busy"):
                raise
            wait = pause_s(fault.retry_after, flown)
            if wait is None:
                raise _limited(fault) if flown < TRIES else fault from None
        await asyncio.sleep(wait)
    raise AssertionError("an endless loop ended")


def _limited(fault: Fault) -> Fault:
    """A server that asks to come again much later limits a rate."""
    said = f"{fault.message}: asked to come again after {fault.retry_after}, which is not waited for"
    return unseen("engine-busy", said, actual=fault.actual, evidence=fault.evidence)


async def _admitted(session: Session, shape: Shape, pace: Pace) -> Leg:
    requests = await _requests(session, pace, 1, LEG)

    async def once() -> Leg:
        flight = await fly(session, shape, requests, _deadlines(session, pace, 1), LEG)
        return _with_numbers(session, judge(Flown(_streams(flight), others=flight.others), session), flight)

    return await _undisturbed(session, once)


def judge(flown: Flown, session: Session) -> Leg:
    """The leg; a fault carries what was seen."""
    try:
        return judge_flown(flown, session.contract)
    except Fault as fault:
        fault.observed = flown_json(flown)
        raise


@dataclass(frozen=True, slots=True)
class _Tried:
    """One flight that is to prove that all was held: what it showed, and how long it took in seconds."""

    flight: Flight
    flown: Flown
    seconds: float


async def _held(session: Session, shape: Shape, pace: Pace) -> Leg:
    answer = answer_tokens(session.contract, pace, 1)
    for attempt in itertools.count(1):
        requests = await _requests(session, pace, answer, LEG)
        tried = await _undisturbed(session, partial(_try, session, shape, pace, requests, attempt))
        _facts(session, tried, attempt)
        try:
            return _with_numbers(session, judge(tried.flown, session), tried.flight)
        except Fault as fault:
            most = QUICK_ATTEMPTS if tried.seconds < QUICK_S else ATTEMPTS
            if fault.code != "hold-unproven" or short_answers(tried.flown) or attempt >= most:
                raise
        low = tried.flown.hold is not None and tried.flown.hold.together
        answer = shorter(answer) if low else answer_tokens(session.contract, pace, attempt + 1)
    raise AssertionError("an endless loop ended")


async def _try(session: Session, shape: Shape, pace: Pace, requests: list[Request], attempt: int) -> _Tried:
    """One flight. Raises Fault ``engine-busy`` where others took part, and what was seen fails for it or may."""
    clock = asyncio.get_running_loop().time
    answer = min(request.answer for request in requests)
    before, began = await preemptions(session), clock()
    flight = await fly(session, shape, requests, _deadlines(session, pace, answer), LEG)
    seconds = clock() - began
    tried = _Tried(flight, _flown(session, shape, flight, attempt, (before, await preemptions(session))), seconds)
    try:
        judge(tried.flown, session)
    except Fault as fault:
        if fault.code == "engine-busy":
            raise
    return tried


def _flown(
    session: Session, shape: Shape, flight: Flight, attempt: int, counters: tuple[float | None, float | None]
) -> Flown:
    before, after = counters
    prompts = {i: request.prompt_tokens for i, request in enumerate(flight.requests)}
    answers = {i: seen.completion_tokens or 0 for i, seen in flight.seen.items()}
    hold = judge_hold(flight.ticks, prompts, answers)
    pace, least = session.pace, min(request.answer for request in flight.requests)
    return Flown(
        _streams(flight),
        hold,
        visible=bool(shape.completions) or all(seen.counted for seen in flight.seen.values()),
        generous=pace is not None and is_generous(session.contract, pace, least, attempt),
        queued=_queued(flight, hold),
        slots=flight.watch.slots if flight.watch else None,
        lag_s=round(flight.lag_s, 6),
        preempted=None if before is None or after is None else max(0.0, after - before),
        others=flight.others,
    )


def _queued(flight: Flight, hold: Hold) -> bool:
    """What the engine said of its load in the second half of the answer that ended first."""
    end = next((tick for tick in flight.ticks if tick.kind == "finish"), None)
    if end is None or flight.watch is None or hold.late_s is None:
        return False
    first = min(tick.at for tick in flight.ticks if tick.stream == end.stream and tick.kind != "sent")
    return flight.watch.queued((first + end.at) / 2, end.at, len(flight.requests))


def _streams(flight: Flight) -> tuple[Answered, ...]:
    return tuple(
        Answered(
            request.prompt_tokens,
            request.answer,
            flight.seen[i].prompt_tokens,
            flight.seen[i].completion_tokens,
            flight.seen[i].finish_reason,
            flight.seen[i].tokens,
        )
        for i, request in enumerate(flight.requests)
    )


def _facts(session: Session, tried: _Tried, attempt: int) -> None:
    flight, flown = tried.flight, tried.flown
    assert flown.hold is not None
    session.facts |= {
        "prompt_tokens": sum(request.prompt_tokens for request in flight.requests),
        "answer_tokens": sum(request.answer for request in flight.requests),
        "held_at_once": flown.hold.at_once,
        "held_tokens_at_least": flown.hold.peak_tokens,
        "attempts": attempt,
    }


def _with_numbers(session: Session, leg: Leg, flight: Flight) -> Leg:
    """Seconds from the first request to the first token of the last sequence, beside what the facts tell."""
    sent = min(tick.at for tick in flight.ticks)
    firsts = {i: min(t.at for t in flight.ticks if t.stream == i and t.kind != "sent") for i in flight.started}
    numbers: dict[str, int | float | str] = {"ttft_s": round(max(firsts.values()) - sent, 3)}
    names = ("held_at_once", "held_tokens_at_least", "prefill_tokens_per_s")
    numbers |= {name: session.facts[name] for name in names if name in session.facts}
    return replace(leg, numbers=numbers)


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
