"""Which conversation lies where: the engine's slots, the staged files, and the board that the policy looks at. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from archonctl.tiers.manifest import Staged
from archonctl.tiers.policy import HALF_LIFE_S, expected_uses
from archonctl.tiers.prefix import BLOCK_BYTES, Prefix, Text
from archonctl.tiers.slots import Slot
from archonctl.tiers.table import ENGINE
from archonctl.tiers.values import Board, Item, Tier

MOST = 4096
"""Conversations that are remembered; the one that is reused least is forgotten first."""

_SHORTEST_S, _LONGEST_S = 1.0, 1800.0
"""The pauses between which a rhythm is believed: a program's burst ends some time, and nobody's day is one pause."""


@dataclass(eq=False)
class Conversation:
    """One conversation that was served here, or whose file was found; it may lie nowhere any more."""

    id: str
    prefix: Prefix
    tokens: int | None = None
    """In its slot, else in its file; ``None`` while that was not seen."""
    prompt_tokens: int | None = None
    """Of its latest prompt, without the answer: the next prompt begins with these at least."""
    uses: int = 0
    used_at: float = 0.0
    rhythm_s: float = HALF_LIFE_S
    """Between two uses, the latest counting most: who stays away for several times as long is not coming back soon."""
    seat: Seat | None = None
    staged: Staged | None = None
    """Its file, which may be older than what lies in the slot."""
    places: tuple[str, ...] = ()
    """Where the file lies, hottest first."""

    def use(self, now: float) -> None:
        """Somebody is back."""
        if self.uses and self.used_at:
            between_s = min(max(now - self.used_at, _SHORTEST_S), _LONGEST_S)
            self.rhythm_s = (self.rhythm_s + between_s) / 2
        self.uses, self.used_at = self.uses + 1, now

    def expected_uses(self, now: float) -> float:
        """Orders conversations by who is missed most."""
        return expected_uses(self.uses, now - self.used_at, self.rhythm_s)

    @property
    def live(self) -> bool:
        """True if a slot holds it."""
        return self.seat is not None

    @property
    def in_file(self) -> bool:
        """True if its file has all that its slot has."""
        return self.staged is not None and (self.staged.tokens, self.staged.prefix) == (self.tokens, self.prefix)


@dataclass(eq=False)
class Seat:
    """One slot of the engine."""

    id: int
    n_ctx: int
    holder: Conversation | None = None
    stamp: tuple[int, int] | None = None
    """Task and tokens of the slot when its holder was last seen there; ``None``: not seen yet."""
    guests: int = 0
    """Requests that were sent to it and have not ended."""
    moving: bool = False
    """Its content is being staged: wait for that."""

    @property
    def idle(self) -> bool:
        """True if nothing is done with it."""
        return not self.guests and not self.moving

    def still_holds(self, slot: Slot) -> bool:
        """True if nothing but what was placed here has run in the slot since."""
        return self.stamp is not None and self.stamp == (slot.task, slot.tokens)


@dataclass(frozen=True)
class Match:
    """A known conversation that a prompt begins like."""

    conversation: Conversation
    shared_bytes: int
    whole: bool
    """The prompt goes on from where the conversation was: not a branch, nor one that only begins alike."""

    @property
    def shared_tokens(self) -> int | None:
        """About so many tokens are shared."""
        each = self.conversation
        known, size = each.prompt_tokens if each.prompt_tokens is not None else each.tokens, each.prefix.bytes
        return None if known is None else known if self.whole or not size else known * self.shared_bytes // size


@dataclass
class Book:
    """Everything that is known of one start of an engine."""

    seats: list[Seat] = field(default_factory=list)
    conversations: dict[str, Conversation] = field(default_factory=dict)
    bytes_per_token: float | None = None
    """As of the latest save."""
    _index: dict[str, dict[str, Conversation]] = field(default_factory=dict)

    def begin(self, slots: Iterable[Slot]) -> None:
        """A new start of the engine: its slots hold nothing that is known."""
        for seat in self.seats:
            self.leave(seat)
        self.seats = [Seat(slot.id, slot.n_ctx) for slot in slots]

    def know(self, conversation: Conversation) -> None:
        """Remember one; what is reused least goes where there are too many."""
        self.conversations[conversation.id] = conversation
        self._index.setdefault(_key(conversation.prefix), {})[conversation.id] = conversation
        while len(self.conversations) > MOST:
            idle = [each for each in self.conversations.values() if not each.live]
            self.forget(min(idle or self.conversations.values(), key=lambda each: each.used_at))

    def forget(self, conversation: Conversation) -> None:
        """It is nowhere any more."""
        if conversation.seat is not None:
            conversation.seat.holder, conversation.seat.stamp = None, None
            conversation.seat = None
        self.conversations.pop(conversation.id, None)
        self._index.get(_key(conversation.prefix), {}).pop(conversation.id, None)
        if not self._index.get(_key(conversation.prefix)):
            self._index.pop(_key(conversation.prefix), None)

    def grow(self, conversation: Conversation, prefix: Prefix) -> None:
        """Its latest prompt is longer, or another."""
        seat = conversation.seat
        conversation.seat = None
        self.forget(conversation)
        conversation.prefix, conversation.seat = prefix, seat
        self.know(conversation)

    def sit(self, conversation: Conversation, seat: Seat) -> None:
        """It lies in this slot now, and nothing else does."""
        if seat.holder is not conversation:
            self.leave(seat)
        if conversation.seat is not None and conversation.seat is not seat:
            conversation.seat.holder, conversation.seat.stamp = None, None
        seat.holder, conversation.seat = conversation, seat

    def leave(self, seat: Seat) -> None:
        """What the slot held is not there any more. Who it was stays known: its loss is seen when it is back."""
        holder = seat.holder
        seat.holder, seat.stamp = None, None
        if holder is not None:
            holder.seat = None
            if holder.staged is not None:
                holder.tokens = holder.staged.tokens

    def match(self, text: Text) -> Match | None:
        """The conversation that the prompt goes on from, else the one that shares most of its beginning."""
        best: Match | None = None
        for key in ("", *text.prefix.blocks):
            for each in self._index.get(key, {}).values():
                if text.begins_with(each.prefix) and (best is None or each.prefix.bytes > best.shared_bytes):
                    best = Match(each, each.prefix.bytes, True)
        mine, same = text.prefix.blocks, 0
        if best is not None:
            return best
        for each in self.conversations.values():
            theirs = each.prefix.blocks
            while same < min(len(mine), len(theirs)) and mine[same] == theirs[same]:  # a digest is of all before it too
                same += 1
                best = Match(each, same * BLOCK_BYTES, False)
        return best

    def free(self, now: float) -> list[Seat]:
        """Slots that no request of ours is in: the empty ones, then by what is reused least."""

        def value(seat: Seat) -> tuple[float, int]:
            holder = seat.holder
            return (holder.expected_uses(now) if holder else -1.0, seat.id)

        return sorted((seat for seat in self.seats if seat.idle), key=value)

    def size_of(self, conversation: Conversation) -> int | None:
        """Bytes of its KV cache: those of its file, or by the latest save."""
        if not conversation.live and conversation.staged is not None:
            return conversation.staged.bytes
        if conversation.tokens is None or self.bytes_per_token is None:
            return None
        return int(conversation.tokens * self.bytes_per_token)

    def board(
        self,
        tiers: Sequence[Tier],
        prefill_s_per_token: float | None,
        high_water: float,
        now: float,
        movable: Callable[[Conversation], bool] = lambda _each: True,
    ) -> Board:
        """What the policy decides on. A file that is older than the slot's content counts as other bytes."""
        names = [tier.name for tier in tiers]
        items = []
        for each in self.conversations.values():
            where = ENGINE if each.live else next((place for place in each.places if place in names), None)
            if where is not None:
                busy = bool(each.seat and not each.seat.idle) or not movable(each)
                idle_s, size = max(0.0, now - each.used_at), self.size_of(each)
                items.append(Item(each.id, where, size, each.tokens, each.expected_uses(now), idle_s, busy))
        return Board(tuple(tiers), tuple(items), prefill_s_per_token, high_water)


def _key(prefix: Prefix) -> str:
    return prefix.blocks[-1] if prefix.blocks else ""
