"""Which slot of the engine a request goes to, and what is brought there or put away before it is sent.

Only time can be lost here: llama-server compares the tokens of a slot with those of the prompt and goes on from what
is equal, so no answer is made from another conversation's cache whatever this says. And whatever fails, the request
goes on without.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Callable, Coroutine

from archonctl.guard.hooks import Held, Placed
from archonctl.guard.prompt import Prompt
from archonctl.guard.seated import UNPLACED, Seated
from archonctl.tiers import policy
from archonctl.tiers.book import Book, Conversation, Match, Seat
from archonctl.tiers.executor import Executor
from archonctl.tiers.prefix import Text, text_of
from archonctl.tiers.served import Served, served
from archonctl.tiers.slots import Slot, SlotError, Trouble
from archonctl.tiers.store import StagingError
from archonctl.tiers.table import ENGINE

_SETTLE_S = (0.0, 0.1, 0.5, 2.0)
"""Waits for a slot whose request was cancelled to come to rest."""
_SURE_S = 0.5
"""So long after a look the engine is taken to be the same: it takes longer to start another one."""
_PLACE_S = 30.0
"""For everything that is done before a request is sent. A disk that hangs must not hang who asks."""
_AWAY_S, _AWAY_PAUSE_S = 120.0, 0.25
"""An engine that is away is waited for by whose conversation lies in a file: sent now, it would be prefilled again."""


class Placer:
    """The placement of one guard (``hooks.Placement``)."""

    def __init__(self, executor: Executor, say: Callable[[str], None]) -> None:
        self._executor, self._say = executor, say
        self._tasks: set[asyncio.Task[object]] = set()
        self._seen: dict[int, int | None] = {}
        self._ended: dict[int, Seated] = {}
        """The latest request of a slot that has ended, until it was seen what it left there."""
        self._busy: set[int] = set()
        self._sure_until = 0.0
        self._late: asyncio.Task[object] | None = None
        """What somebody waited for in vain and is still being done: nobody waits behind it."""

    @property
    def book(self) -> Book:
        """What is known to lie where."""
        return self._executor.book

    async def place(self, prompt: Prompt, _ticket: Held) -> Seated:
        """Before the request is sent. Does not raise: what cannot be placed goes as it is."""
        placed = UNPLACED
        try:
            text = None if prompt.choices > 1 else text_of(prompt.path, prompt.body)
            if text is not None:
                placed = await self._placed(text)
        except (SlotError, StagingError) as err:
            self._executor.counts.failed("place", err.trouble.value, str(err))
        except Exception as err:  # noqa: BLE001  a defect here must not cost anybody an answer
            self._executor.counts.failed("place", "defect")
            self._say(f"tiers: a request was sent as it is: {type(err).__name__}: {err}")
        if placed is UNPLACED:
            self._executor.counts.request("unplaced")
        return placed

    async def _placed(self, text: Text) -> Seated:
        """Raises SlotError, StagingError."""
        ends = time.monotonic() + _AWAY_S
        while True:
            try:
                return (await self._same_engine() and self._at_once(text)) or await self._in_turn(text)
            except SlotError as err:
                match = self.book.match(text)
                staged = match is not None and match.conversation.staged is not None
                if err.trouble is not Trouble.UNREACHABLE or not staged or time.monotonic() > ends:
                    raise
            await asyncio.sleep(_AWAY_PAUSE_S)

    async def _same_engine(self, ahead_s: float = 0.0) -> bool:
        """True if what the book says of slots holds, now and ``ahead_s`` from now. Raises SlotError."""
        if time.monotonic() + ahead_s > self._sure_until:
            if not await self._executor.unchanged():
                return False
            self._sure_until = time.monotonic() + _SURE_S
        return True

    async def done(self, placed: Placed, tail: bytes = b"") -> None:
        """After its answer has ended, whatever way; what there is to see and to do is done behind it."""
        said = served(tail)
        if said is not None:
            self._executor.speeds.prefilled(said.prefilled_tokens, said.prefill_s)
        if isinstance(placed, Seated) and placed.seat is not None:
            placed.seat.guests -= 1
            self._ended[placed.seat.id] = placed
            self._behind(self._after(placed, said))

    async def close(self) -> None:
        """End what runs behind requests: a move comes to its end."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def leave(self, within_s: float) -> None:
        """At the end: who comes next knows nothing of what only slots hold, so it goes into files. Does not raise."""
        try:
            async with asyncio.timeout(1.25 * within_s):
                await self.close()
                task = await self._executor.turns.begin(lambda: self._executor.put_away(within_s))
                await asyncio.shield(task)
        except (SlotError, StagingError) as err:
            self._executor.counts.failed("leave", err.trouble.value, str(err))
        except TimeoutError:
            self._executor.counts.failed("leave", Trouble.TIMED_OUT.value)

    def _behind(self, work: Coroutine[object, object, object]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _in_turn(self, text: Text) -> Seated:
        """The slow way, one at a time, and never for long."""
        if self._late is not None and not self._late.done():
            return UNPLACED
        task: asyncio.Task[Seated] | None = None
        try:
            async with asyncio.timeout(_PLACE_S):
                task = await self._executor.turns.begin(lambda: self._seat_for(text))
                return await asyncio.shield(task)
        except (TimeoutError, asyncio.CancelledError) as err:
            if task is not None:
                self._behind(self._give_back(task))
            if isinstance(err, asyncio.CancelledError):
                raise
        self._late = self._executor.turns.running
        self._executor.counts.failed("place", Trouble.TIMED_OUT.value)
        return UNPLACED

    async def _give_back(self, task: asyncio.Task[Seated]) -> None:
        """Nobody waits for it any more: what it reserved is free."""
        with contextlib.suppress(SlotError, StagingError):
            await self.done(await task)

    def _at_once(self, text: Text) -> Seated | None:
        """A conversation that goes on in its own slot needs nothing to be done."""
        match = self.book.match(text)
        seat = match.conversation.seat if match and match.whole else None
        if match is None or seat is None or not seat.idle:
            return None
        return self._reserve("live", seat, match.conversation, text, match.shared_tokens)

    async def _seat_for(self, text: Text) -> Seated:
        await self._executor.same_engine()
        await self._look_round()
        if found := self._at_once(text):
            return found
        match = self.book.match(text)
        if not self._free():
            return UNPLACED  # the engine has its own queue, and serves who comes first
        if match is not None and self._executor.fingerprint:
            if match.conversation.staged is not None and not match.conversation.live and self._pays(match):
                return await self._restored(match, text)
            if not match.whole and (branch := await self._beside(match, text)):
                return branch
        seat = await self._vacate(None)
        known = match.conversation if match and match.whole and not match.conversation.live else None
        expected = match.shared_tokens if match is not None else None
        return self._reserve("fresh", seat, known or _new(text), text, expected)

    async def _look_round(self) -> None:
        """What the engine did on its own: requests that were not placed, slots that it emptied."""
        slots = await self._executor.client.slots()
        self._busy = {slot.id for slot in slots if slot.busy}
        for seat, slot in zip(self.book.seats, slots, strict=False):
            if seat.idle and not slot.busy and (ended := self._ended.get(seat.id)):
                self._saw(ended, slot)
            if seat.idle and seat.stamp is not None and not seat.still_holds(slot):
                self.book.leave(seat)

    def _free(self) -> list[Seat]:
        return [seat for seat in self.book.free(time.time()) if seat.id not in self._busy]

    def _pays(self, match: Match) -> bool:
        """True unless prefilling what is shared is known to take less time than reading the file."""
        staged, speed = match.conversation.staged, self._executor.speeds.prefill_s_per_token
        tier = next((each for each in self._executor.tiers() if each.name == self._executor.store.first), None)
        took = tier.transfer_s(staged.bytes) if tier and staged else None
        shared = match.shared_tokens
        return speed is None or took is None or shared is None or took < shared * speed

    async def _restored(self, match: Match, text: Text) -> Seated:
        """From a file into the slot that is missed least. A branch takes a copy: the file stays for the other."""
        seat = await self._vacate(match.conversation)
        outcome = await self._executor.bring(match.conversation, seat)
        conversation = match.conversation
        if not match.whole:
            self.book.leave(seat)
            conversation = _new(text)
        how = ("restored" if match.whole else "branch") if outcome.done else "fresh"
        return self._reserve(how, seat, conversation, text, match.shared_tokens, restored=outcome.done)

    async def _beside(self, match: Match, text: Text) -> Seated | None:
        """Another prompt begins like one that is in a slot: stage that one, and go on from what they share."""
        other, first = match.conversation, self._executor.store.first
        seat, shared = other.seat, match.shared_tokens
        tier = next((each for each in self._executor.tiers() if each.name == first), None)
        size, speed = self.book.size_of(other), self._executor.speeds.prefill_s_per_token
        if seat is None or not seat.idle or tier is None or size is None or speed is None or shared is None:
            return None
        took = tier.transfer_s(size)
        if took is None or took >= shared * speed:
            return None
        try:
            await self._executor.stage(other, first)
        except (SlotError, StagingError) as err:
            self._executor.counts.failed("demote", err.trouble.value, str(err))
            return None
        return self._reserve("branch", seat, _new(text), text, shared)

    async def _vacate(self, kept: Conversation | None) -> Seat:
        """An empty slot; what is missed least was put away, or is given up where that could not be done."""
        seat = self._free()[0]
        if seat.holder is not None and self._executor.fingerprint:
            if self.book.bytes_per_token is None:
                await self._learn_size(seat.holder)
            board = self._executor.board(lambda each: each is not kept and not self._is_busy(each))
            await self._executor.carry_out(policy.make_room(board, ENGINE, 0))
            seat = next(iter(self._free()), seat)
        if seat.holder is not None:
            size = self.book.size_of(seat.holder)
            self._executor.counts.moved("evict", "slot_needed", size or 0, 0.0)
            self.book.leave(seat)
        return seat

    async def _learn_size(self, conversation: Conversation) -> None:
        """Save one conversation that stays where it is: only a file says how many bytes a token takes."""
        try:
            await self._executor.stage(conversation, self._executor.store.first, leave=False)
        except (SlotError, StagingError) as err:
            self._executor.counts.failed("measure", err.trouble.value, str(err))

    def _is_busy(self, conversation: Conversation) -> bool:
        return conversation.seat is not None and conversation.seat.id in self._busy

    def _reserve(
        self,
        how: str,
        seat: Seat,
        conversation: Conversation,
        text: Text,
        expected: int | None,
        *,
        restored: bool = False,
    ) -> Seated:
        self._executor.counts.request(how)
        before = seat.stamp[0] if seat.stamp else self._seen.get(seat.id)
        conversation.use(time.time())
        if conversation.id not in self.book.conversations:
            self.book.know(conversation)
        was_there = seat.holder is conversation
        self.book.sit(conversation, seat)
        seat.guests += 1
        seat.stamp = None
        return Seated(seat.id, seat, conversation, expected, text.prefix, was_there, restored, before)

    async def _after(self, placed: Seated, said: Served | None) -> None:
        """See what the request left in its slot, and use the pause."""
        if said is not None:
            self._was_served(placed, said)
        try:
            slot = await self._settled(placed)
            if slot is not None:
                self._saw(placed, slot)
            await self._same_engine(_SURE_S / 2)  # asked behind this request, not before the next
            if not any(seat.guests for seat in self.book.seats):
                await asyncio.shield(await self._executor.turns.begin(lambda: self._pause(placed)))
        except (SlotError, StagingError) as err:
            self._executor.counts.failed("look", err.trouble.value, str(err))

    async def _settled(self, placed: Seated) -> Slot | None:
        """The slot once its request has left it; ``None`` if another is in it by then."""
        for wait_s in _SETTLE_S:
            await asyncio.sleep(wait_s)
            slots = await self._executor.client.slots()
            seat = placed.seat
            if seat is None or seat.guests or seat not in self.book.seats or seat.id >= len(slots):
                return None
            if not slots[seat.id].busy:
                return slots[seat.id]
        return None

    def _saw(self, placed: Seated, slot: Slot) -> None:
        seat, conversation = placed.seat, placed.conversation
        if seat is None or conversation is None or seat.holder is not conversation:
            return
        if self._ended.pop(seat.id, None) is None:
            return  # it was seen already
        self._seen[seat.id] = slot.task
        ran = slot.task != placed.task_before
        if slot.task is None or not slot.tokens or not (ran or placed.was_there):
            self.book.leave(seat)  # it was refused, or the engine emptied the slot
            return
        if ran and placed.prefix is not None:
            self.book.grow(conversation, placed.prefix)
        seat.stamp, conversation.tokens = (slot.task, slot.tokens), slot.tokens

    def _was_served(self, placed: Seated, said: Served) -> None:
        if placed.conversation is not None:
            placed.conversation.prompt_tokens = said.prompt_tokens
        if placed.expected_tokens is not None:
            known = min(placed.expected_tokens, said.prompt_tokens)
            self._executor.counts.reuse(min(said.cached_tokens, known), max(0, known - said.cached_tokens))
            if placed.restored:
                self._executor.used(known, said.cached_tokens)

    async def _pause(self, placed: Seated) -> None:
        """While the engine has nothing to do for us: learn the size of a token, put files away."""
        conversation = placed.conversation
        if self._executor.fingerprint and self.book.bytes_per_token is None and conversation and conversation.seat:
            await self._learn_size(conversation)
        if self._executor.fingerprint:
            await self._executor.sweep()


def _new(text: Text) -> Conversation:
    return Conversation(secrets.token_hex(16), text.prefix)
