"""Who goes to the engine now, who waits, who is refused. For one event loop; nothing in it is thread-safe."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from archonctl.guard import refusals
from archonctl.guard.metrics import GuardMetrics
from archonctl.guard.need import (
    Need,
    answer_limit,
    budget_tokens,
    is_ours_to_bound,
    longest_tokens,
    need_of,
    slots_of,
    too_long,
)
from archonctl.guard.pool import Pool
from archonctl.guard.queue import Entry, FairQueue
from archonctl.guard.values import Ask, Capacity, Refusal, Refused
from archonctl.guard.wait import Flight, ServiceTimes


@dataclass(frozen=True)
class Snapshot:
    """The state of admission, for a page and for the metrics. ``free_tokens`` is None where no budget is known."""

    capacity: Capacity
    held_tokens: int
    held_slots: int
    free_tokens: int | None
    high_water_tokens: int
    in_flight: int
    waiting: int
    waiting_tokens: int


@dataclass(frozen=True)
class Bounds:
    """How many may wait: of all clients, and of one."""

    waiting: int = 1024
    waiting_of_client: int = 64


class Ticket:
    """One admitted request. Release it when its answer has ended, whatever way; also as a context manager."""

    def __init__(self, admission: Admission, number: int, ask: Ask, began: float, *, known: bool) -> None:
        self.known = known
        """False: it passed without its size or the engine's being known."""
        self.waited_s = 0.0
        self.answer_limit = answer_limit(ask, admission.capacity) if known else None
        """The ``max_tokens`` that must be written into the request (``Prompt.limited``), so that the engine keeps to
        what is reserved; None where nothing must be."""
        self.ask = ask
        self.number = number
        self.began = began
        self._admission = admission

    def release(self) -> None:
        """Give back what it holds; a second call does nothing."""
        self._admission.give_back(self)

    def __enter__(self) -> Ticket:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


@dataclass(eq=False)
class _Waiter:
    ask: Ask
    need: Need
    turn: asyncio.Future[Ticket]
    since: float


class Admission:
    """One engine's door. ``clock`` counts seconds."""

    def __init__(
        self,
        capacity: Capacity | None = None,
        *,
        metrics: GuardMetrics | None = None,
        bounds: Bounds | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.metrics = metrics or GuardMetrics()
        self._bounds = bounds or Bounds()
        self._clock = clock
        self._pool = Pool(capacity or Capacity())
        self._queue: FairQueue[_Waiter] = FairQueue()
        self._tickets: dict[int, Ticket] = {}
        self._numbers = itertools.count(1)
        self._times = ServiceTimes()
        self._sharpener: asyncio.Task[None] | None = None
        self.metrics.limits(self._pool.capacity)
        pool, queue = self._pool, self._queue
        self.metrics.follow(lambda: pool.tokens, lambda: pool.high_water_tokens, lambda: len(pool), lambda: len(queue))

    @property
    def capacity(self) -> Capacity:
        """What requests are held against now."""
        return self._pool.capacity

    def set_capacity(self, capacity: Capacity) -> None:
        """Take another capacity into account: an engine was started again, or another release runs. Those who wait
        are judged anew by it; what is held stays held."""
        if capacity == self._pool.capacity:
            return
        self._pool.capacity = capacity
        self.metrics.limits(capacity)
        for entry in list(self._queue):
            waiter = entry.item
            found = too_long(waiter.ask, capacity)
            if found is not None and not waiter.turn.done():
                self._queue.remove(entry)
                waiter.turn.set_exception(Refused(refusals.never_fits(waiter.ask, found)))
            waiter.need = need_of(waiter.ask, capacity)
        self._pump()

    async def admit(self, ask: Ask, *, wait_s: float) -> Ticket:
        """Wait for room, at most ``wait_s`` seconds. Raises Refused. Cancelled at any point, it leaves nothing held."""
        since = self._clock()
        if reason := self._unknown(ask):
            return self._pass(ask, reason)
        if not ask.exact and self._suffices(ask):
            self.metrics.counted("bound")
        elif not ask.exact:
            try:
                async with asyncio.timeout(max(wait_s, _COUNT_S)):
                    ask = await self._exactly(ask)
            except TimeoutError:
                ask = replace(ask, unknown="count-late")
            if reason := self._unknown(ask):
                return self._pass(ask, reason)
        if (found := too_long(ask, self.capacity)) is not None:
            raise Refused(refusals.never_fits(ask, found))
        self.metrics.planned(need_of(ask, self.capacity).tokens, self._pool.free_tokens)
        return await self._queued(ask, wait_s, since)

    def _unknown(self, ask: Ask) -> str:
        return ask.unknown or ("" if self.capacity.is_known else "capacity")

    def _suffices(self, ask: Ask) -> bool:
        """True if a bound will do. Where we bound the answer ourselves, it would be cut by what the bound has too
        much."""
        return self._fits_now(ask) and not is_ours_to_bound(ask, self.capacity)

    def _fits_now(self, ask: Ask) -> bool:
        fits = too_long(ask, self.capacity) is None and self._pool.shortage(need_of(ask, self.capacity)) is None
        return fits and not self._queue

    async def _exactly(self, ask: Ask) -> Ask:
        counts = await ask.count() if ask.count is not None else None
        if counts is None:
            return replace(ask, unknown="not-countable" if ask.count is None else "count-failed")
        return replace(ask, prompts=counts, exact=True, count=None)

    def _pass(self, ask: Ask, reason: str) -> Ticket:
        """Fail open, and hold what is known of it, no more than any one request can take."""
        self.metrics.passed_unknown(reason)
        need, longest = need_of(ask, self.capacity), longest_tokens(self.capacity)
        return self._take(ask, need if longest is None else Need(min(need.tokens, longest), need.slots), known=False)

    async def _queued(self, ask: Ask, wait_s: float, since: float) -> Ticket:
        need = need_of(ask, self.capacity)
        self._may_queue(ask, need)
        waiter = _Waiter(ask, need, asyncio.get_running_loop().create_future(), since)
        entry = self._queue.put(ask.client, need.tokens, waiter)
        self._pump()
        if not waiter.turn.done():
            await self._wait(entry, wait_s)
        ticket = waiter.turn.result()
        ticket.waited_s = self._clock() - since
        self.metrics.admitted(ticket.waited_s)
        return ticket

    def _may_queue(self, ask: Ask, need: Need) -> None:
        if self._fits_now(ask):
            return
        waiting = self._queue.waiting_of(ask.client)
        if waiting >= self._bounds.waiting_of_client:
            raise Refused(refusals.client_full(waiting, need, self._retry_after_s(need)))
        if len(self._queue) >= self._bounds.waiting:
            held = Need(self._pool.tokens, self._pool.slots)
            after = self._retry_after_s(need)
            raise Refused(refusals.queue_full(len(self._queue), need, held, self._waiting_tokens(), after))

    async def _wait(self, entry: Entry[_Waiter], wait_s: float) -> None:
        """Until its turn, its deadline, or the end of its client. A turn that came with the end is given back."""
        waiter = entry.item
        if self._sharpener is None or self._sharpener.done():
            self._sharpener = asyncio.create_task(self._sharpen())
        try:
            await asyncio.wait({waiter.turn}, timeout=max(0.0, wait_s))
            if not waiter.turn.done():
                refusal = self._late(entry)
                waiter.turn.set_exception(Refused(refusal))
        except asyncio.CancelledError:
            if waiter.turn.done() and waiter.turn.exception() is None:
                waiter.turn.result().release()
            self.metrics.left_waiting()
            raise
        finally:
            if self._queue.remove(entry):
                self._pump()  # it may have been due, and kept others back

    async def _sharpen(self) -> None:
        """Count those exactly that hold a bound, the largest first, while anybody waits for the room that they do not
        need."""
        tried: set[int] = set()
        while self._queue and (ticket := self._least_sharp(tried)) is not None:
            tried.add(ticket.number)
            ask = await self._exactly(ticket.ask)
            if not ask.unknown and ticket.number in self._tickets:
                ticket.ask = ask
                self._pool.hold(ticket.number, need_of(ask, self.capacity))
                self._pump()

    def _least_sharp(self, tried: set[int]) -> Ticket | None:
        found = (t for t in self._tickets.values() if t.number not in tried and t.known and not t.ask.exact)
        return max(found, key=lambda t: self._pool.held_by(t.number).tokens, default=None)

    def _pump(self) -> None:
        """Let everybody in whose turn it is."""
        while (entry := self._queue.take(self._fits)) is not None:
            waiter = entry.item
            if not waiter.turn.done():
                waiter.turn.set_result(self._take(waiter.ask, waiter.need, known=True))

    def _fits(self, waiter: _Waiter) -> bool:
        return self._pool.shortage(waiter.need) is None

    def _take(self, ask: Ask, need: Need, *, known: bool) -> Ticket:
        ticket = Ticket(self, next(self._numbers), ask, self._clock(), known=known)
        self._pool.hold(ticket.number, need)
        self._tickets[ticket.number] = ticket
        return ticket

    def give_back(self, ticket: Ticket) -> None:
        """As ``Ticket.release``."""
        need = self._pool.held_by(ticket.number)
        if self._pool.let_go(ticket.number):
            del self._tickets[ticket.number]
            self._times.saw(self._clock() - ticket.began, need)
            self._pump()

    def _late(self, entry: Entry[_Waiter]) -> Refusal:
        need, since = entry.item.need, entry.item.since
        before = [each.item.need for each in self._queue.ahead_of(entry)]
        held = Need(self._pool.tokens, self._pool.slots)
        budget = Need(budget_tokens(self.capacity) or 0, slots_of(self.capacity) or 0)
        short = self._pool.shortage(need) or ("pool" if budget.tokens else "slots")
        after = self._retry_after_s(need, before)
        waiting = self._waiting_tokens() - need.tokens
        return refusals.not_now(short, need, held, waiting, budget, after, self._clock() - since)

    def _retry_after_s(self, need: Need, before: list[Need] | None = None) -> int:
        ahead = [each.item.need for each in self._queue] if before is None else before
        budget, slots = budget_tokens(self.capacity), slots_of(self.capacity)
        free_tokens = 0 if budget is None else budget - self._pool.tokens
        free_slots = 0 if slots is None else slots - self._pool.slots
        tokens = sum(each.tokens for each in ahead) + need.tokens - free_tokens
        wanted = sum(each.slots for each in ahead) + need.slots - free_slots
        missing = Need(0 if budget is None else max(0, tokens), 0 if slots is None else max(0, wanted))
        now = self._clock()
        flights = [Flight(self._pool.held_by(t.number), now - t.began) for t in self._tickets.values()]
        return self._times.retry_after_s(missing, flights)

    def _waiting_tokens(self) -> int:
        return sum(entry.item.need.tokens for entry in self._queue)

    def snapshot(self) -> Snapshot:
        """What is held and who waits now."""
        pool = self._pool
        return Snapshot(
            pool.capacity,
            pool.tokens,
            pool.slots,
            pool.free_tokens,
            pool.high_water_tokens,
            len(pool),
            len(self._queue),
            self._waiting_tokens(),
        )


_COUNT_S = 30.0
"""How long an exact count may take where the request itself would not wait at all."""
