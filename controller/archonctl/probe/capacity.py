"""The capacity leg: full-height requests, all at once, all answered, nothing cut, and really held at once."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import replace
from functools import partial

from archonctl.probe.budget import Deadlines, answer_tokens, is_generous, shorter
from archonctl.probe.calibrate import calibrate
from archonctl.probe.capacity_judge import Answered, Flown, flown_json, judge_flown, short_answers
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
_FIRST_PROMPT = 16


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
        return _with_numbers(session, judge(Flown(_streams(flight), others=flight.others), session), flight)
    return await _held(session, shape, pace)


def judge(flown: Flown, session: Session) -> Leg:
    """The leg; a fault carries what was seen."""
    try:
        return judge_flown(flown, session.contract)
    except Fault as fault:
        fault.observed = flown_json(flown)
        raise


async def _held(session: Session, shape: Shape, pace: Pace) -> Leg:
    clock = asyncio.get_running_loop().time
    answer = answer_tokens(session.contract, pace, 1)
    for attempt in itertools.count(1):
        requests = await _requests(session, pace, answer, LEG)
        await wait_idle(session)
        before, began = await preemptions(session), clock()
        flight = await fly(session, shape, requests, _deadlines(session, pace, answer), LEG)
        quick = clock() - began < QUICK_S
        flown = _flown(session, shape, flight, attempt, (before, await preemptions(session)))
        _facts(session, flight, flown, attempt)
        try:
            return _with_numbers(session, judge(flown, session), flight)
        except Fault as fault:
            most = QUICK_ATTEMPTS if quick else ATTEMPTS
            if fault.code != "hold-unproven" or short_answers(flown) or attempt >= most:
                raise
        low = flown.hold is not None and flown.hold.together
        answer = shorter(answer) if low else answer_tokens(session.contract, pace, attempt + 1)
    raise AssertionError("an endless loop ended")


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


def _facts(session: Session, flight: Flight, flown: Flown, attempt: int) -> None:
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
