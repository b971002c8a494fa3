"""The files of the conversations of a book. The disk is worked on in threads, the book only in the event loop."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from functools import partial

from archonctl.tiers.book import Book, Conversation
from archonctl.tiers.counts import TierCounts
from archonctl.tiers.slots import Moved
from archonctl.tiers.speeds import Speeds
from archonctl.tiers.store import StagingError, Store, StoreTrouble

KEEP_S = 7 * 86400.0
"""A conversation that was not gone on with for a week is not kept (a choice)."""


@dataclass
class Filing:
    """Everything here may raise StagingError; what was there before is there then, and the book says so."""

    store: Store
    book: Book
    speeds: Speeds
    counts: TierCounts

    async def begin(self, fingerprint: str) -> None:
        """Clean up, measure what was not measured, and know every file that this engine may be given."""
        try:
            await asyncio.to_thread(partial(self.store.clean, keep_s=KEEP_S))
        except StagingError as err:
            self.counts.failed("clean", err.trouble.value, str(err))
        for name in self.store.specs:
            try:
                await asyncio.to_thread(self.speeds.first, name, self.store)
            except StagingError as err:
                self.counts.failed("measure", err.trouble.value, f"{name}: {err}")
        mine = {id_ for id_, entry in self.store.entries.items() if entry.staged.fingerprint == fingerprint}
        for each in self.book.conversations.values():
            id_ = each.staged.id if each.staged and each.staged.id in mine else None
            self._note(each, id_)
            mine.discard(id_ or "")
        for id_ in mine:
            staged = self.store.entries[id_].staged
            self.book.bytes_per_token = staged.bytes / max(staged.tokens, 1)
            each = Conversation(id_, staged.prefix, staged.tokens, uses=staged.uses, used_at=staged.at)
            self.book.know(each)
            self._note(each, id_)
        self.stands()

    async def clean(self) -> None:
        """Remove what is half-made or too old."""
        await asyncio.to_thread(partial(self.store.clean, keep_s=KEEP_S))
        for each in self.book.conversations.values():
            self._note(each, each.staged.id if each.staged else None)
        self.stands()

    def stands(self) -> None:
        """Publish what lies where."""
        for name in self.store.specs:
            sizes = [self.store.bytes_in(id_, name) for id_ in self.store.entries]
            self.counts.stands(name, sum(sizes), sum(size > 0 for size in sizes))

    def _note(self, conversation: Conversation, id_: str | None) -> None:
        """Write into the book what the store says of a file."""
        entry = self.store.entries.get(id_ or "")
        conversation.staged = entry.staged if entry else None
        conversation.places = tuple(name for name in self.store.specs if entry and name in entry.places)

    async def take(
        self, conversation: Conversation, id_: str, to: str, saved: Moved, fingerprint: str, began: float
    ) -> None:
        """Verify what the engine wrote, carry it to its tier, and only then let go of the file before it."""
        first, older = self.store.first, conversation.staged
        prefix, uses = conversation.prefix, conversation.uses
        await asyncio.to_thread(self.store.adopt, id_, saved.tokens, saved.bytes, fingerprint, prefix, uses=uses)
        self.speeds.learn(first, saved.bytes, time.monotonic() - began)
        self.book.bytes_per_token = saved.bytes / max(saved.tokens, 1)
        if to != first:
            try:
                await self.free_older(to, saved.bytes, conversation)
                await self._copy(id_, first, to)
                await asyncio.to_thread(self.store.drop, id_, first)
            except StagingError:
                await asyncio.to_thread(self.store.drop, id_)
                raise
        self._note(conversation, id_)
        if older is not None:
            await asyncio.to_thread(self.store.drop, older.id)

    async def _copy(self, id_: str, source: str, target: str) -> None:
        began = time.monotonic()
        await asyncio.to_thread(self.store.copy, id_, source, target)
        self.speeds.learn(target, self.store.bytes_in(id_, target), time.monotonic() - began)

    async def shift(self, conversation: Conversation, to: str) -> None:
        """A file to another place."""
        if conversation.staged is None or not conversation.places:
            raise StagingError(StoreTrouble.GONE, "it has no file")
        id_, source = conversation.staged.id, conversation.places[0]
        await self.free_older(to, conversation.staged.bytes, conversation)
        try:
            await self._copy(id_, source, to)
            await asyncio.to_thread(self.store.drop, id_, source)
        finally:
            self._note(conversation, id_)

    async def ready(self, conversation: Conversation) -> None:
        """The file is verified, and where the engine reads it."""
        id_ = conversation.staged.id if conversation.staged else ""
        try:
            await asyncio.to_thread(self.store.ready, id_)
        finally:
            self._note(conversation, id_)

    async def drop(self, conversation: Conversation, place: str | None = None) -> None:
        """Let go of a file, or of one copy."""
        id_ = conversation.staged.id if conversation.staged else ""
        try:
            await asyncio.to_thread(self.store.drop, id_, place)
        finally:
            self._note(conversation, id_)

    async def free_older(self, place: str, size: int, but: Conversation) -> None:
        """Let go of other engines' files and of those whose conversation goes on in a slot, until there is room."""
        known = {each.staged.id for each in self.book.conversations.values() if each.staged is not None}
        for id_ in [id_ for id_, entry in self.store.entries.items() if id_ not in known and place in entry.places]:
            if self.store.room_bytes(place) < size:
                await asyncio.to_thread(self.store.drop, id_, place)
        live = [each for each in self.book.conversations.values() if each.live and place in each.places]
        for each in sorted(live, key=lambda one: one.staged.at if one.staged else 0.0):
            if self.store.room_bytes(place) >= size:
                return
            if each is not but:
                await self.drop(each, place)
