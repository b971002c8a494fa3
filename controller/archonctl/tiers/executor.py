"""Carries out what the policy decided: slots to files, files down a tier, files back into slots, one at a time.

Every move is staged, verified and only then dropped at its old place. Whatever fails is counted and told as a value;
the copy that was there before stays.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path

from archonctl.deployment.tiers import Tiers
from archonctl.tiers import policy
from archonctl.tiers.book import Book, Conversation, Seat
from archonctl.tiers.counts import TierCounts
from archonctl.tiers.filing import Filing
from archonctl.tiers.fingerprint import Boot, Unsuitable, UnsuitableError, boot_of, fingerprint_of
from archonctl.tiers.manifest import Staged
from archonctl.tiers.running import save_path
from archonctl.tiers.slots import SlotClient, SlotError, Trouble
from archonctl.tiers.speeds import Speeds
from archonctl.tiers.store import StagingError, Store, StoreTrouble
from archonctl.tiers.table import ENGINE, Seen, ladder
from archonctl.tiers.turns import Turns
from archonctl.tiers.values import Action, Board, Decision, Placement, Reason, Tier

RESTORE, AHEAD = "restore", "save_ahead"
UNUSED_LIMIT = 3
"""Restores in a row of which the engine used next to nothing: then no more are made until it is started anew."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one decision."""

    item: str
    action: str
    done: bool
    reason: str
    """The policy's, or ``staging_failed``."""
    trouble: str = ""
    """The word of who could not do it."""
    detail: str = ""
    bytes: int = 0
    tokens: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Setup:
    """What an executor must be told; the rest it learns."""

    declared: Tiers
    argv: Callable[[], Sequence[str] | None]
    """The running engine's options (``running.running_arguments``); ``None``: unknown, and then nothing is moved."""
    model_file: Path | None = None


class Executor:
    """The tiers of one engine."""

    def __init__(self, setup: Setup, client: SlotClient, store: Store, counts: TierCounts) -> None:
        self.setup, self.client, self.store, self.counts = setup, client, store, counts
        self.book = Book()
        self.fingerprint = ""
        """Empty while conversations are not moved for this engine."""
        self.why_not = ""
        self.speeds = Speeds()
        self.filing = Filing(store, self.book, self.speeds, counts)
        self._boot: Boot | None = None
        self._unused = 0
        self.turns = Turns()
        if setup.declared.prefill_tokens_per_s:
            self.speeds.declared_prefill_s = 1 / setup.declared.prefill_tokens_per_s

    async def same_engine(self) -> bool:
        """True if the engine that the book speaks of still runs; else the book begins anew. Raises SlotError."""
        try:
            boot = await boot_of(self.client)
            if boot == self._boot:
                return True
            self._boot, self.fingerprint, self.why_not, self._unused = None, "", "", 0
            self.book.begin(await self.client.slots())
            self._boot = boot
            arguments = await asyncio.to_thread(self.setup.argv)
            self._saves_here(arguments)
            self.fingerprint = await fingerprint_of(self.client, boot, arguments, self.setup.model_file)
            await self.filing.begin(self.fingerprint)
        except UnsuitableError as err:
            self.why_not = err.why.value
            self.counts.failed("start", err.why.value)
        self.counts.usable(bool(self.fingerprint))
        return False

    def _saves_here(self, arguments: Sequence[str] | None) -> None:
        """Raises UnsuitableError where the engine's files would be looked for in another folder."""
        if arguments is None:
            raise UnsuitableError(Unsuitable.ARGUMENTS_UNKNOWN)
        said, ours = save_path(arguments), self.store.specs[self.store.first].path
        if said is None or said.resolve() != ours.resolve():
            raise UnsuitableError(Unsuitable.OTHER_FOLDER)

    def tiers(self) -> tuple[Tier, ...]:
        """The engine's slots, then the places, with what is known of each. Raises StagingError."""
        seen = {ENGINE: Seen(places=len(self.book.seats))}
        counted = {each.staged.id: each for each in self.book.conversations.values() if each.staged is not None}
        for name in self.store.specs:
            room, used = self.store.room_bytes(name), self.store.used_bytes(name)
            other = used
            for id_ in self.store.entries:
                conversation = counted.get(id_)  # none: it was staged for another engine, and goes where room is short
                if conversation is None or conversation.live or conversation.places[:1] == (name,):
                    other -= self.store.bytes_in(id_, name)  # an item of the board, or what may go
            seen[name] = self.speeds.seen(name, used + room, other)
        known = {ENGINE, *self.store.specs}
        return tuple(tier for tier in ladder(self.setup.declared, seen) if tier.name in known)

    def board(self, movable: Callable[[Conversation], bool] = lambda _each: True) -> Board:
        """What the policy decides on. Raises StagingError where a folder cannot be read."""
        declared = self.setup.declared
        return self.book.board(self.tiers(), self.speeds.prefill_s_per_token, declared.high_water, time.time(), movable)

    async def carry_out(self, placement: Placement) -> tuple[Outcome, ...]:
        """Every move in its order; one that fails leaves its copy where it was. Does not raise."""
        return tuple([await self._one(decision) for decision in placement.moves])

    async def _one(self, decision: Decision) -> Outcome:
        conversation = self.book.conversations.get(decision.item.id)

        async def move() -> None:
            if conversation is None or decision.action is Action.COMPRESS_DEMOTE:
                raise StagingError(StoreTrouble.GONE, "it is not there any more, or cannot be made smaller")
            if decision.to_tier is None:
                await self._give_up(conversation)
            elif conversation.live:
                await self.stage(conversation, decision.to_tier)
            else:
                await self.filing.shift(conversation, decision.to_tier)

        size, tokens = decision.item.bytes or 0, decision.item.tokens or 0
        return await self._told(decision.item.id, decision.action.value, decision.reason.value, size, tokens, move())

    async def _told(
        self, item: str, action: str, reason: str, size: int, tokens: int, move: Coroutine[object, object, None]
    ) -> Outcome:
        """Do it and count it; a failure is a value."""
        began = time.monotonic()
        try:
            await move
        except (SlotError, StagingError) as err:
            self.counts.failed(action, err.trouble.value, str(err))
            return Outcome(item, action, False, Reason.STAGING_FAILED.value, err.trouble.value, str(err))
        finally:
            self.filing.stands()
        seconds = time.monotonic() - began
        self.counts.moved(action, reason, size, seconds)
        return Outcome(item, action, True, reason, "", "", size, tokens, seconds)

    async def _give_up(self, conversation: Conversation) -> None:
        if conversation.seat is not None:
            self.book.leave(conversation.seat)
        else:
            await self.filing.drop(conversation)

    async def stage(self, conversation: Conversation, to: str, *, leave: bool = True) -> None:
        """A slot's content into a verified file in a tier; then, if it is to ``leave``, the slot counts as empty.

        Raises SlotError, StagingError: then the slot is as it was.
        """
        seat = conversation.seat
        if seat is None or not self.fingerprint:
            raise StagingError(StoreTrouble.GONE, "it is in no slot, or the engine is not known")
        seat.moving = True
        try:
            await self._check(seat)
            if conversation.in_file:
                if to not in conversation.places:
                    await self.filing.shift(conversation, to)
            else:
                await self._save(conversation, seat, to)
            if leave:
                self.book.leave(seat)
        finally:
            seat.moving = False

    async def _save(self, conversation: Conversation, seat: Seat, to: str) -> None:
        size = self.book.size_of(conversation)
        await self._room_in_first(size or 0, conversation)
        if size is not None and self.store.room_bytes(self.store.first) < size:
            raise StagingError(StoreTrouble.NO_ROOM, f"no room for {size:,} bytes where the engine writes")
        id_, began = self.store.new_id(), time.monotonic()
        try:
            saved = await self.client.save(seat.id, f"{id_}.kv")
            await self._check(seat)  # nothing ran in the slot meanwhile, and the engine is the same
        except BaseException:
            self.store.discard(id_)
            raise
        await self.filing.take(conversation, id_, to, saved, self.fingerprint, began)

    async def _check(self, seat: Seat) -> None:
        if not await self.unchanged():  # another one counts its requests from 0 too: a slot may look the same
            raise StagingError(StoreTrouble.GONE, "the engine is another one by now")
        slots = await self.client.slots()
        slot = slots[seat.id] if seat.id < len(slots) else None
        if seat.guests or (slot is not None and slot.busy):
            raise SlotError(Trouble.REFUSED, f"slot {seat.id} is at work")
        if slot is None or not seat.still_holds(slot):
            self.book.leave(seat)
            raise StagingError(StoreTrouble.GONE, f"slot {seat.id} holds something else by now")

    async def unchanged(self) -> bool:
        """True if the engine that the book speaks of still runs. Raises SlotError."""
        try:
            return await boot_of(self.client) == self._boot
        except UnsuitableError:
            return False

    async def bring(self, conversation: Conversation, seat: Seat) -> Outcome:
        """A file into a slot in place of what the slot held: whoever calls has seen to that. Does not raise."""
        staged = conversation.staged
        size, tokens = (staged.bytes, staged.tokens) if staged else (0, 0)
        move = self._bring(conversation, seat)
        return await self._told(conversation.id, RESTORE, "asked_for", size, tokens, move)

    async def _bring(self, conversation: Conversation, seat: Seat) -> None:
        staged = conversation.staged
        if staged is None or staged.fingerprint != self.fingerprint:
            raise StagingError(StoreTrouble.GONE, "it has no file, or one of another engine")
        if self.store.first not in conversation.places:
            await self._room_in_first(staged.bytes, conversation)
        await self.filing.ready(conversation)
        if not await self.unchanged():  # reading a large file took its time
            raise StagingError(StoreTrouble.GONE, "the engine is another one by now")
        self.book.leave(seat)
        await self._restore(seat, staged)
        self.book.sit(conversation, seat)
        if len(conversation.places) > 1:  # the colder copy is kept; this one only passed through
            await self.filing.drop(conversation, self.store.first)

    async def _restore(self, seat: Seat, staged: Staged) -> None:
        """Raises SlotError: then the slot is empty, whichever engine was given the file."""
        restored, fine = await self.client.restore(seat.id, staged.kv), False
        try:
            fine = (restored.tokens, restored.bytes) == (staged.tokens, staged.bytes) and await self.unchanged()
        finally:
            if not fine:
                await self.client.erase(seat.id)
        if not fine:
            raise SlotError(Trouble.BAD_ANSWER, "the engine restored something else, or is another one by now")

    async def _room_in_first(self, size: int, but: Conversation) -> None:
        """Every file passes through the place that the engine reads and writes: make room there."""
        first = self.store.first
        await self.filing.free_older(first, size, but)
        if self.store.room_bytes(first) < size:
            board = self.board(lambda each: each is not but and not each.live)
            if any(tier.name == first for tier in board.tiers):  # one without any capacity is no tier
                await self.carry_out(policy.make_room(board, first, size))

    async def sweep(self) -> tuple[Outcome, ...]:
        """Bring the places under their marks, one tier down. Does not raise."""
        try:
            board = self.board(lambda each: not each.live)
        except StagingError as err:
            self.counts.failed("sweep", err.trouble.value, str(err))
            return ()
        done = list[Outcome]()
        for decision in policy.place(board, promote=False).moves:
            if self.turns.waiting:
                break  # a request needs a slot; what is left to do is found again
            done.append(await self._one(decision))
        return tuple(done)

    async def save_ahead(self, conversation: Conversation) -> Outcome:
        """A file of what a slot holds, which stays there. Does not raise."""
        size, tokens = self.book.size_of(conversation) or 0, conversation.tokens or 0
        move = self.stage(conversation, self.store.first, leave=False)
        return await self._told(conversation.id, AHEAD, "idle", size, tokens, move)

    async def put_away(self, within_s: float) -> tuple[Outcome, ...]:
        """What only idle slots hold into files, where the policy finds that worth it and as far as the time goes.

        Raises SlotError, StagingError where nothing can be begun.
        """
        end, done = time.monotonic() + within_s, list[Outcome]()
        if not await self.same_engine() or not self.fingerprint:
            return ()
        board = self.board(lambda each: not each.live or (not each.in_file and self.book.size_of(each) is not None))
        stay = sum(item.in_use for item in board.items if item.tier == ENGINE)
        for decision in policy.make_room(board, ENGINE, 0, len(self.book.seats) - stay).moves:
            tier = board.tier(decision.to_tier) if decision.to_tier else None
            takes_s = tier.transfer_s(decision.bytes_after or 0) if tier else None
            if time.monotonic() + (takes_s or 0.0) > end:
                break
            done.append(await self._one(decision))
        return tuple(done)

    def used(self, expected: int, cached: int) -> None:
        """After a restore: whether the engine went on from what it was given.

        It does not for models with a sliding window or a recurrent state, whose checkpoints are in no file.
        """
        self._unused = self._unused + 1 if cached * 20 < expected else 0
        if self._unused >= UNUSED_LIMIT and self.fingerprint:
            self.fingerprint, self.why_not = "", "restores_unused"
            self.counts.failed(RESTORE, self.why_not)
            self.counts.usable(False)
