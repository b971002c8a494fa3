"""Sending full-height requests all at once, and recording what each stream shows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from archonctl.probe.budget import Deadlines
from archonctl.probe.faults import Fault, unseen
from archonctl.probe.hold import Tick
from archonctl.probe.prompts import Prompt
from archonctl.probe.session import Session
from archonctl.probe.shape import Shape
from archonctl.probe.stream import Change, Seen, run_stream
from archonctl.probe.watch import Watch, busy

OnChange = Callable[[int, Change, Seen], None]

_TELL_EVERY_S = 0.1
_LOOK_EVERY_S = 0.01


@dataclass(frozen=True, slots=True)
class Request:
    """One full-height request: ``height`` tokens are prompt (as the engine counts it) and answer together."""

    prompt: Prompt
    prompt_tokens: int
    answer: int

    @property
    def height(self) -> int:
        """Tokens of the sequence at its end."""
        return self.prompt_tokens + self.answer


@dataclass(slots=True)
class Flight:
    """The requests under way: the ticks in the order seen, and the latest state of each stream."""

    requests: Sequence[Request]
    clock: Callable[[], float]
    ticks: list[Tick] = field(default_factory=list)
    seen: dict[int, Seen] = field(default_factory=dict)
    started: set[int] = field(default_factory=set)
    faults: list[Fault] = field(default_factory=list)
    open: int = 0
    """Connections of ours that are open now."""
    watch: Watch | None = None
    looking: asyncio.Task[None] | None = None
    lag_s: float = 0.0
    """Longest time for which this client was seen not to look: events closer than that may be out of order."""
    turn: int = 0
    """Which turn of the loop this is, counted where something was seen: what a single read held is seen in one turn."""
    _turning: bool = False

    def note(self, index: int, change: Change, seen: Seen) -> None:
        """Take one event of one stream."""
        self.seen[index] = seen
        if change in ("token", "finish"):
            self.started.add(index)
            self.ticks.append(Tick(self.clock(), index, change, seen.tokens, self._this_turn()))

    def _this_turn(self) -> int:
        if not self._turning:
            self._turning = True
            asyncio.get_running_loop().call_soon(self._next_turn)
        return self.turn

    def _next_turn(self) -> None:
        self._turning, self.turn = False, self.turn + 1

    @property
    def done_tokens(self) -> int:
        """Tokens prefilled and generated so far, as far as can be seen."""
        return sum(
            (self.requests[i].prompt_tokens if i in self.started else seen.processed) + seen.tokens
            for i, seen in self.seen.items()
        )

    @property
    def others(self) -> int:
        """Requests of others that were surely there meanwhile."""
        return self.watch.others if self.watch else 0

    def left_s(self, elapsed_s: float) -> float | None:
        """Seconds that are left at the pace so far; None until a twentieth is done."""
        total, done = sum(request.height for request in self.requests), self.done_tokens
        return elapsed_s * (total - done) / done if done * 20 >= total and elapsed_s > 1 else None

    @property
    def all_started(self) -> bool:
        """True once every sequence is past its prefill."""
        return len(self.started) == len(self.requests)


async def fly(session: Session, shape: Shape, requests: Sequence[Request], deadlines: Deadlines, leg: str) -> Flight:
    """Send all requests at once and follow them to the end. Raises Fault; closes every connection in any case."""
    loop = asyncio.get_running_loop()
    flight = Flight(requests, loop.time)
    total = sum(request.height for request in requests)
    started_at = told_at = loop.time()

    def on_change(index: int, change: Change, seen: Seen) -> None:
        nonlocal told_at
        before = flight.all_started
        flight.note(index, change, seen)
        if deadlines.extends:
            allowed = deadlines.answer_s if flight.all_started and not before else session.limits.floor_s
            wanted = max(clock.when() or 0.0, loop.time() + allowed)
            clock.reschedule(min(wanted, started_at + session.limits.cap_s))
        if loop.time() - told_at >= _TELL_EVERY_S:
            told_at = loop.time()
            text = f"{len(flight.started)} of {len(requests)} past prefill"
            session.tell(leg, flight.done_tokens, total, text, flight.left_s(told_at - started_at))

    flight.watch = Watch(session, lambda: flight.open)
    lag = asyncio.create_task(_watch_lag(flight))
    try:
        async with asyncio.timeout(deadlines.first_s) as clock, asyncio.TaskGroup() as group:
            for index in range(len(requests)):
                flight.ticks.append(Tick(loop.time(), index, "sent"))
                flight.open += 1
                group.create_task(_one(session, shape, flight, index, on_change))
            flight.looking = group.create_task(_look(flight))
    except ExceptionGroup:
        _forget_own_cancellation()
        if not flight.faults:
            raise
        raise _beside_others(flight, _with_progress(flight)) from None
    except TimeoutError:
        raise _beside_others(flight, _late(flight, deadlines, loop.time() - started_at)) from None
    finally:
        lag.cancel()
        await asyncio.gather(lag, return_exceptions=True)
    session.tell(leg, total, total, "all answered")
    return flight


async def _one(session: Session, shape: Shape, flight: Flight, index: int, on_change: OnChange) -> None:
    request = flight.requests[index]
    try:
        await run_stream(session, shape, request.prompt.text, request.answer, lambda c, s: on_change(index, c, s))
    except Fault as fault:
        _unless_cancelled()
        flight.faults.append(fault)
        raise
    finally:
        flight.open -= 1
        if not flight.open and flight.looking is not None:
            flight.looking.cancel()


async def _look(flight: Flight) -> None:
    assert flight.watch is not None
    try:
        await flight.watch.run()
    except Fault as fault:
        _unless_cancelled()
        flight.faults.append(fault)
        raise


def _unless_cancelled() -> None:
    """Let a cancellation pass: a stream that fails because it was closed says nothing of the engine."""
    task = asyncio.current_task()
    if task and task.cancelling():
        raise asyncio.CancelledError


def _forget_own_cancellation() -> None:
    """Before Python 3.13 a task group that one of its tasks failed leaves its parent marked as cancelled; whoever asks
    for an interrupt afterwards would see one."""
    task = asyncio.current_task()
    if task and task.cancelling():
        task.uncancel()


async def _watch_lag(flight: Flight) -> None:
    """Measure by how much this client is late in looking at its sockets."""
    while True:
        before = flight.clock()
        await asyncio.sleep(_LOOK_EVERY_S)
        flight.lag_s = max(flight.lag_s, flight.clock() - before - _LOOK_EVERY_S)


def _beside_others(flight: Flight, fault: Fault) -> Fault:
    """What failed while others took room and time says nothing of the engine alone."""
    if fault.code == "engine-busy" or fault.status != "fail" or not flight.others:
        return fault
    return busy(flight.others, f"what was seen then proves nothing ({fault.message})")


def _with_progress(flight: Flight) -> Fault:
    """The first fault, with how far the sequences had come."""
    fault, total = flight.faults[0], sum(request.height for request in flight.requests)
    come = f"{len(flight.started)} of {len(flight.requests)} sequences past prefill, {flight.done_tokens:,} tokens in"
    fault.message += f" ({come}, of {total:,})"
    fault.expected = fault.expected or f"{total:,} tokens at once"
    return fault


def _late(flight: Flight, deadlines: Deadlines, elapsed_s: float) -> Fault:
    waiting = len(flight.requests) - len(flight.started)
    ended = sum(1 for seen in flight.seen.values() if seen.finished)
    if waiting:
        code = "never-admitted"
        message = f"{waiting} of {len(flight.requests)} full-height requests got no first token in {elapsed_s:.0f} s"
    else:
        code = "answers-unfinished"
        message = f"{ended} of {len(flight.requests)} full-height answers ended in {elapsed_s:.0f} s"
    expected = f"about {deadlines.needed_s:.0f} s at most, by the measured pace"
    if elapsed_s < deadlines.needed_s or (not waiting and not deadlines.extends):
        return unseen("deadline-reached", f"{message}: too short a deadline to call that a hang", expected=expected)
    return Fault(code, f"{message}; {expected}", expected=expected, actual=f"{elapsed_s:.0f} s")
