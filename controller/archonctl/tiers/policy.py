"""Which conversation goes where: pure, deterministic, and never a move that an unknown figure would have to justify.

A conversation is retained in a colder tier where going there and coming back takes less time than prefilling it again:

    2 x (bytes / bandwidth + latency) < tokens x prefill s/token

A tier above its high-water mark is swept until it is under the target; what is expected to be used least goes first.
"""

from __future__ import annotations

import math
from dataclasses import replace

from archonctl.tiers.values import Action, Board, Decision, Item, Placement, Reason, Tier

HALF_LIFE_S = 60.0
"""A conversation that nobody came back to for so long counts half, where its own rhythm is not known: about as long as
somebody reads and writes (a choice; only the order depends on it)."""


def expected_uses(uses: int, idle_s: float, half_life_s: float = HALF_LIFE_S) -> float:
    """An order of reuse from what was seen: uses so far, halved for every ``half_life_s`` of silence."""
    return max(uses, 0) * math.exp2(-max(idle_s, 0.0) / half_life_s)


def place(board: Board, *, promote: bool = True) -> Placement:
    """Bring up what is reused and finds room under the mark, sweep every tier, the coldest first, and use what room
    that left.

    On a board whose tiers are under their marks, and where nothing that is reused lies colder than it must, every
    item is kept: a second look after the first was carried out sweeps nothing.
    """
    work = _Work(board)
    if promote:  # first what may: it relieves the tier that it leaves
        work.promote_all()
    pressed = [tier.name for tier in reversed(board.tiers) if not work.relieve(tier.name, 0, 0)]
    if promote:
        work.promote_all()
    return work.placement(tuple(reversed(pressed)))


def make_room(board: Board, tier: str, size_bytes: int, places: int = 1) -> Placement:
    """The moves out of one tier after which ``size_bytes`` more and ``places`` more conversations are under its mark.

    The tier is in ``pressed`` where that cannot be had. Raises ValueError where there is no such tier.
    """
    work = _Work(board)
    relieved = work.relieve(tier, size_bytes, places)
    return work.placement(() if relieved else (tier,))


def in_order(items: tuple[Item, ...]) -> list[Item]:
    """What is given up first comes first: fewest expected uses, then longest idle, then by name."""
    return sorted(items, key=_reuse)


class _Work:
    """A board that moves while decisions are made on it. Each move is reckoned with at once, in constant time."""

    def __init__(self, board: Board) -> None:
        self.board = board
        self.lies: dict[str, dict[str, Item]] = {tier.name: {} for tier in board.tiers}
        """What lies in each tier: what was there first, reused least first, and behind it what came in."""
        for item in in_order(board.items):
            self.lies[item.tier][item.id] = item
        self.used = {tier.name: board.used_bytes(tier.name) for tier in board.tiers}
        self.moves: dict[str, Decision] = {}
        self.why_kept: dict[str, Reason] = {}

    def limit(self, tier: Tier) -> int | None:
        """Bytes up to the mark."""
        return None if tier.capacity_bytes is None else int(tier.capacity_bytes * self.board.mark(tier))

    def over(self, tier: Tier, size: int, places: int) -> bool:
        """True if so much more would be too much; an unknown capacity is not."""
        return max(self._over_by(tier, size, places)) > 0

    def has_room(self, tier: Tier, size: int) -> bool:
        """True if it is known that so much more is under the mark."""
        return tier.capacity_bytes is not None and not self.over(tier, size, 1)

    def relieve(self, name: str, size: int, places: int) -> bool:
        """Move out of a tier what is reused least until so much more would be under the mark; False: it cannot be.

        What is asked for and cannot be had moves nothing; a tier that is over its mark is relieved as far as it can be.
        """
        tier = self.board.tier(name)
        while victims := self._victims(tier, size, places):
            for item in victims:
                self.give_up(item)
        return not self.over(tier, size, places)

    def _victims(self, tier: Tier, size: int, places: int) -> list[Item]:
        """What has to go, reused least first, without what may stay because a later and larger one goes."""
        bytes_over, places_over = self._over_by(tier, size, places)
        chosen: list[Item] = []
        for item in self.lies[tier.name].values():
            if bytes_over <= 0 and places_over <= 0:
                break
            if reason := self._stuck(item):
                self.why_kept[item.id] = reason
            elif item.id not in self.moves and item.id not in self.why_kept:
                chosen.append(item)
                bytes_over, places_over = bytes_over - (item.bytes or 0), places_over - 1
        if bytes_over > 0 or places_over > 0:
            return [] if size or places else chosen
        needed = []
        for item in reversed(chosen):
            if bytes_over + (item.bytes or 0) <= 0 and places_over + 1 <= 0:
                bytes_over, places_over = bytes_over + (item.bytes or 0), places_over + 1
            else:
                needed.append(item)
        return needed[::-1]

    def _over_by(self, tier: Tier, size: int, places: int) -> tuple[float, float]:
        """By how many bytes and conversations it would be too much; minus infinity where there is no limit."""
        limit = self.limit(tier)
        return (
            -math.inf if limit is None else self.used[tier.name] + size - limit,
            -math.inf if tier.places is None else len(self.lies[tier.name]) + places - tier.places,
        )

    def _stuck(self, item: Item) -> Reason | None:
        """Why an item cannot be moved whatever the tiers are like."""
        if item.in_use:
            return Reason.IN_USE
        if item.bytes is None:
            return Reason.UNKNOWN_SIZE
        return Reason.UNKNOWN_RECOMPUTE if self.board.recompute_s(item) is None else None

    def give_up(self, item: Item) -> None:
        """One item leaves its tier, or stays where an unknown figure forbids to judge."""
        colder = self.board.colder(item.tier)
        if self._retain(item, colder) or self._compress(item, colder):
            return
        if any(self._unknown(tier, item) for tier in colder):
            self.why_kept[item.id] = Reason.UNKNOWN_TARGET
        elif not colder:
            self._move(item, Action.EVICT, Reason.NO_COLDER_TIER, None)
        else:
            worth = any(self._worth(item, item.bytes or 0, tier) for tier in colder)
            self._move(item, Action.EVICT, Reason.NO_ROOM if worth else Reason.RECOMPUTE_CHEAPER, None)

    def _retain(self, item: Item, colder: tuple[Tier, ...]) -> bool:
        """To the nearest colder tier with room that is worth it; where none has room, to one that makes some."""
        size = item.bytes or 0
        worth = [tier for tier in colder if self._worth(item, size, tier)]
        for tier in worth:
            if self.has_room(tier, size):
                return self._move(item, _down(tier), Reason.RETAIN_CHEAPER, tier)
        for tier in worth:
            if self._displace(item, tier):
                return self._move(item, _down(tier), Reason.DISPLACES_COLDER, tier)
        return False

    def _compress(self, item: Item, colder: tuple[Tier, ...]) -> bool:
        size = item.compressed_bytes
        if size is None or size >= (item.bytes or 0):
            return False
        for tier in colder:
            if self._worth(item, size, tier) and self.has_room(tier, size):
                exact = self._worth(item, item.bytes or 0, tier)
                reason = Reason.ONLY_COMPRESSED_FITS if exact else Reason.ONLY_COMPRESSED_CHEAPER
                return self._move(item, Action.COMPRESS_DEMOTE, reason, tier, size)
        return False

    def _displace(self, item: Item, tier: Tier) -> bool:
        """Make room in a colder tier by giving up what is reused less there; nothing is moved if that is not enough."""
        size = item.bytes or 0
        while not self.has_room(tier, size):
            lesser = self._lesser(item, tier)
            for other in lesser:
                self.give_up(other)
            if not lesser:
                return False
        return True

    def _lesser(self, item: Item, tier: Tier) -> list[Item]:
        """The first of what is reused less than an item in a tier that make room for it; none where all do not."""
        limit, chosen, left = self.limit(tier), list[Item](), self.used[tier.name] + (item.bytes or 0)
        for other in self.lies[tier.name].values():
            if limit is None or other.id in self.moves or _reuse(other) >= _reuse(item):
                break  # what came in lies behind all that was there
            if not self._stuck(other) and other.id not in self.why_kept:
                chosen.append(other)
                left -= other.bytes or 0
                if left <= limit:
                    return chosen
        return []

    def _worth(self, item: Item, size: int, tier: Tier) -> bool:
        there_and_back, recompute = tier.round_trip_s(size), self.board.recompute_s(item)
        return there_and_back is not None and recompute is not None and there_and_back < recompute

    def _unknown(self, tier: Tier, item: Item) -> bool:
        """True if a tier might have taken it."""
        there_and_back = tier.round_trip_s(item.bytes or 0)
        return there_and_back is None or (tier.capacity_bytes is None and self._worth(item, item.bytes or 0, tier))

    def promote_all(self) -> None:
        """Bring up what is reused most into the room under the marks, the hottest tier first.

        Room in a tier is made by what left it upwards, never the other way round, so one pass leaves nothing to do.
        """
        wanted = in_order(self.board.items)[::-1]
        for index, tier in enumerate(self.board.tiers):
            colder = {each.name for each in self.board.tiers[index + 1 :]}
            for item in wanted:
                may = item.tier in colder and item.expected_uses > 0 and item.id not in self.moves
                if may and not self._stuck(item) and self._fits_up(item, tier):
                    self._move(item, Action.PROMOTE, Reason.REUSE_AND_ROOM, tier)

    def _fits_up(self, item: Item, tier: Tier) -> bool:
        return self.has_room(tier, item.bytes or 0) and tier.transfer_s(item.bytes or 0) is not None

    def _move(
        self, item: Item, action: Action, reason: Reason, to: Tier | None, bytes_after: int | None = None
    ) -> bool:
        size = item.bytes if bytes_after is None else bytes_after
        self.moves[item.id] = replace(self._decision(item, action, reason, to.name if to else None), bytes_after=size)
        del self.lies[item.tier][item.id]
        self.used[item.tier] -= item.bytes or 0
        if to is not None:
            self.lies[to.name][item.id] = replace(item, tier=to.name, bytes=size)
            self.used[to.name] += size or 0
        return True

    def _decision(self, item: Item, action: Action, reason: Reason, to: str | None) -> Decision:
        trips = {
            tier.name: None if item.bytes is None else tier.round_trip_s(item.bytes)
            for tier in self.board.colder(item.tier)
        }
        return Decision(item, action, reason, to, item.bytes, self.board.recompute_s(item), trips)

    def placement(self, pressed: tuple[str, ...]) -> Placement:
        """The moves in order, then what is kept."""
        relieved = {each.item.tier for each in self.moves.values()} | set(pressed)
        kept = [
            self._decision(item, Action.KEEP, self.why_kept.get(item.id) or self._why_kept(item, relieved), item.tier)
            for item in self.board.items
            if item.id not in self.moves
        ]
        return Placement((*self.moves.values(), *kept), pressed)

    def _why_kept(self, item: Item, relieved: set[str]) -> Reason:
        if self.board.tier(item.tier).capacity_bytes is None:
            return Reason.UNKNOWN_CAPACITY
        if item.tier not in relieved:
            return Reason.UNDER_MARK
        return self._stuck(item) or Reason.RELIEVED_BY_OTHERS


def _down(tier: Tier) -> Action:
    return Action.DEMOTE if tier.is_memory else Action.SPILL


def _reuse(item: Item) -> tuple[float, float, str]:
    return item.expected_uses, -item.idle_s, item.id
