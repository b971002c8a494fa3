"""Before full height: find the dialect, and measure on a smaller request what the deadlines are derived from."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from archonctl.probe.beside import among_others
from archonctl.probe.calibration import calibration_tokens
from archonctl.probe.capacity_judge import truncated
from archonctl.probe.engine import count_tokens
from archonctl.probe.faults import Fault, unseen
from archonctl.probe.hold import READ_GAP_S
from archonctl.probe.pace import Pace
from archonctl.probe.patience import pause_s
from archonctl.probe.prompts import TOLERANCE, Prompt
from archonctl.probe.session import Session
from archonctl.probe.shape import Shape
from archonctl.probe.stream import Change, Seen, run_stream

_T = TypeVar("_T")

_DIALECTS = 16
_OFFSET = 4
"""A tokenizer path that adds more special tokens than the completion does may count this many more."""
_BACKGROUND_ANSWER = 256
_AT_ONCE = 2
"""Requests of a measurement that are open at once."""
_ANSWER = 8


async def calibrate(session: Session, leg: str) -> tuple[Shape, Pace]:
    """The dialect and the pace, measured once a session. Raises Fault."""
    if session.shape is None or session.pace is None:
        session.shape, session.pace = await _patiently(session, leg)
    return session.shape, session.pace


async def _patiently(session: Session, leg: str) -> tuple[Shape, Pace]:
    """Small requests that are refused for a moment are sent again; refused for ever they say nothing of large ones."""
    for attempt in itertools.count(1):
        try:
            return await _calibrated(session, leg)
        except Fault as fault:
            wait = pause_s(fault.retry_after, attempt)
            if fault.code != "queue-full":
                raise
            if wait is None:
                said = f"small requests are refused again and again: {fault.message}"
                raise unseen("engine-busy", said, actual=fault.actual, evidence=fault.evidence) from fault
        await asyncio.sleep(wait)
    raise AssertionError("an endless loop ended")


async def _calibrated(session: Session, leg: str) -> tuple[Shape, Pace]:
    tokens = calibration_tokens(session.contract.len)
    session.tell(leg, 0, session.contract.tokens, f"calibrating with {tokens:,} tokens")
    shape = await _bounded(session, 1, _dialect(session))
    prompt = await session.prompts.sized(1, tokens, partial(count_tokens, session))
    return shape, await _bounded(session, tokens, _measure(session, shape, prompt))


async def _bounded(session: Session, tokens: int, work: Coroutine[None, None, _T]) -> _T:
    """A request of ``tokens`` in the time that the slowest engine needs. Raises Fault ``never-admitted``."""
    bound_s = session.limits.calibrate_s + tokens * session.limits.calibrate_s_per_token
    return await among_others(session, _AT_ONCE, bound_s, _in_time(tokens, bound_s, work))


async def _in_time(tokens: int, bound_s: float, work: Coroutine[None, None, _T]) -> _T:
    try:
        async with asyncio.timeout(bound_s):
            return await work
    except TimeoutError:
        raise Fault(
            "never-admitted",
            f"a request of {tokens:,} tokens was not answered in {bound_s:g} s",
            expected=f"an answer in {bound_s:g} s",
            actual="none",
        ) from None


async def _dialect(session: Session) -> Shape:
    """Send something tiny; leave out what the engine refuses by name; take chat where there is no completions."""
    shape = Shape.first(session.api, session.model)
    prompt = session.prompts.text(0, 2)
    for _ in range(_DIALECTS):
        try:
            await run_stream(session, shape, prompt, 2, _ignore)
            return shape
        except Fault as fault:
            other = _other_dialect(shape, fault)
            if other is None:
                raise _unspoken(fault) from fault
            shape = other
    raise unseen("dialect-unknown", f"the engine refused {_DIALECTS} forms of one small request")


def _other_dialect(shape: Shape, fault: Fault) -> Shape | None:
    if fault.http_status in (404, 405, 501):
        return shape.as_chat()
    if fault.code not in ("request-refused", "engine-error"):
        return None
    return shape.without(fault.message) or shape.as_chat()


def _unspoken(fault: Fault) -> Fault:
    """A small request that is refused in every form proves nothing about large ones."""
    if fault.code != "request-refused":
        return fault
    return unseen(
        "dialect-unknown", f"no form of a small streamed request is accepted: {fault.message}", evidence=fault.evidence
    )


def _ignore(_change: Change, _seen: Seen) -> None:
    return


@dataclass(slots=True)
class _Watch:
    """When a stream's events came, by the loop's clock."""

    clock: Callable[[], float]
    first: asyncio.Event = field(default_factory=asyncio.Event)
    first_at: float = 0.0
    last_at: float = 0.0
    tokens: int = 0
    reads: int = 0

    def __call__(self, change: Change, seen: Seen) -> None:
        if change not in ("token", "finish"):
            return
        now = self.clock()
        self.reads += not self.reads or now - self.last_at > READ_GAP_S
        self.last_at, self.tokens = now, seen.tokens
        if not self.first.is_set():
            self.first_at = self.last_at
            self.first.set()


async def _measure(session: Session, shape: Shape, prompt: Prompt) -> Pace:
    clock = asyncio.get_running_loop().time
    if session.contract.seqs == 1:
        return await _alone(session, shape, prompt, clock)
    background = _Watch(clock)
    budget = max(2, min(_BACKGROUND_ANSWER, session.contract.len // 4))
    other = asyncio.create_task(run_stream(session, shape, session.prompts.text(2, 2), budget, background))
    try:
        waiter = asyncio.create_task(background.first.wait())
        await asyncio.wait({other, waiter}, return_when=asyncio.FIRST_COMPLETED)
        waiter.cancel()
        if other.done():
            other.result()
        before = background.tokens
        pace = await _alone(session, shape, prompt, clock, lambda: None if other.done() else background.tokens - before)
    finally:
        other.cancel()
        await asyncio.gather(other, return_exceptions=True)
    return pace


async def _alone(
    session: Session,
    shape: Shape,
    prompt: Prompt,
    clock: Callable[[], float],
    steps: Callable[[], int | None] = lambda: None,
) -> Pace:
    """One calibration request; ``steps`` tells how far the background sequence came, or None if it has ended."""
    watch = _Watch(clock)
    during: list[int | None] = []

    def on_change(change: Change, seen: Seen) -> None:
        watch(change, seen)
        if change in ("token", "finish") and not during:
            during.append(steps())

    answer = max(2, min(_ANSWER, session.contract.len // 8))
    sent = clock()
    seen = await run_stream(session, shape, prompt.text, answer, on_change)
    overhead = _overhead(session, shape, prompt, seen)
    stepped = during[0] if during else None
    whole = watch.reads == 1 and seen.tokens > 1
    answered_s = watch.last_at - (sent if whole else watch.first_at)
    gaps = seen.tokens if whole else seen.tokens - 1
    return Pace(
        tokens=prompt.tokens + max(0, overhead),
        prefill_s=max(watch.first_at - sent, 1e-4),
        step_s=max(0.0, answered_s) / max(1, gaps),
        steps_per_token=None if stepped is None else (stepped + 1) / prompt.tokens,
        overhead_tokens=overhead,
        in_one_piece=whole,
    )


def _overhead(session: Session, shape: Shape, prompt: Prompt, seen: Seen) -> int:
    if seen.prompt_tokens is None:
        raise unseen(
            "prompt-tokens-unreported",
            "the engine does not say how many prompt tokens it took: a cut prompt would look like a whole one",
            expected="usage.prompt_tokens",
            actual="none",
        )
    overhead = seen.prompt_tokens - prompt.tokens
    if overhead < -_OFFSET:
        raise truncated(prompt.tokens, seen.prompt_tokens)
    if shape.completions and overhead > TOLERANCE:
        raise unseen(
            "prompt-not-sizable",
            f"{prompt.tokens:,} tokens were sent without a template and the engine counts {seen.prompt_tokens:,}: its "
            "tokenizer path and its usage contradict each other",
            expected=f"{prompt.tokens:,} prompt tokens",
            actual=f"{seen.prompt_tokens:,} prompt tokens",
        )
    if overhead > max(64, session.contract.len // 2):
        raise unseen(
            "prompt-not-sizable",
            f"{prompt.tokens:,} tokens were sent and the engine counts {seen.prompt_tokens:,}: its own text around a "
            f"prompt leaves no room in {session.contract.len:,}",
        )
    return overhead
