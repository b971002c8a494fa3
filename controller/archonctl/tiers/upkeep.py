"""What is done while nobody asks: idle conversations into files, old files away, measured speeds written down."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from archonctl.tiers.book import Conversation
from archonctl.tiers.executor import Executor
from archonctl.tiers.measured import Measured, write_measured
from archonctl.tiers.slots import SlotError
from archonctl.tiers.store import StagingError

LOOK_S = 1.0
QUIET_S = 10.0
"""Nobody asked for so long: then idle slots are saved ahead, one at a time."""
MOST_S = 2.0
"""The engine serves nobody while it saves: what is expected to take longer is not saved ahead."""
HOUSE_S = 600.0
"""Between two cleanings, and two writings of what was measured."""


@dataclass
class Upkeep:
    """Of one executor."""

    executor: Executor
    measured_in: Path | None
    """Where the speeds that were measured are kept."""
    say: Callable[[str], None]
    quiet_s: float = QUIET_S
    _busy_at: float = field(default_factory=time.time)
    _house_at: float = field(default_factory=time.monotonic)
    _tried: dict[int, tuple[str, object]] = field(default_factory=dict)
    """What each slot held when it was last saved, or could not be."""

    async def run(self) -> None:
        """Until cancelled; what was begun comes to its end."""
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                await self.look()
            except (SlotError, StagingError) as err:
                self.executor.counts.failed("upkeep", err.trouble.value, str(err))
            except Exception as err:  # noqa: BLE001  a defect here must not end it for good
                self.executor.counts.failed("upkeep", "defect")
                self.say(f"tiers: {type(err).__name__}: {err}")

    async def look(self) -> None:
        """Do what there is to do now. Raises SlotError, StagingError."""
        if time.monotonic() - self._house_at >= HOUSE_S:
            self._house_at = time.monotonic()
            await self.house()
        while (conversation := self._next()) is not None:
            await self._alone(partial(self._ahead, conversation))

    async def house(self) -> None:
        """Old files away, and the speeds written down. Raises StagingError."""
        await self._alone(self.executor.filing.clean)
        await self.write()

    async def write(self) -> None:
        """Write down what was measured, where something was."""
        measured = self.executor.speeds.measured()
        if self.measured_in is not None and measured != Measured():
            try:
                await asyncio.to_thread(write_measured, self.measured_in, measured)
            except OSError as err:
                self.executor.counts.failed("upkeep", "disk", f"{self.measured_in}: {err.strerror}")

    async def _alone(self, work: Callable[[], Coroutine[object, object, None]]) -> None:
        await asyncio.shield(await self.executor.turns.begin(work))

    def _next(self) -> Conversation | None:
        """What is missed most of all that only a slot holds; None while somebody is served, or was a moment ago."""
        seats, now = self.executor.book.seats, time.time()
        if any(not seat.idle for seat in seats) or self.executor.turns.waiting:
            self._busy_at = now
        held = [seat.holder for seat in seats if seat.holder is not None]
        if now - max([self._busy_at, *(each.used_at for each in held)]) < self.quiet_s or not self.executor.fingerprint:
            return None
        return max(filter(self._is_new, held), key=lambda each: each.expected_uses(now), default=None)

    def _is_new(self, each: Conversation) -> bool:
        stamp = each.seat.stamp if each.seat else None
        return stamp is not None and not each.in_file and (each.id, stamp) not in self._tried.values()

    async def _ahead(self, conversation: Conversation) -> None:
        """Save one in RAM where there is room that nothing has to be moved for, and where it is worth it.

        Not on a disk, which would be written whole at every pause.
        """
        seat = conversation.seat
        if seat is None or not seat.idle or self.executor.turns.waiting:
            return
        self._tried[seat.id] = conversation.id, seat.stamp
        board, first = self.executor.board(), self.executor.store.first
        item = next(each for each in board.items if each.id == conversation.id)
        tier = next((each for each in board.tiers if each.name == first), None)
        again_s, size = board.recompute_s(item), item.bytes
        takes_s = tier.transfer_s(size) if tier is not None and size is not None else None
        if size is None or takes_s is None or again_s is None:
            return  # a figure is missing
        if tier is None or tier.capacity_bytes is None or not tier.is_memory:
            return
        fits = board.used_bytes(first) + size <= tier.capacity_bytes * board.mark(tier)
        if fits and size <= self.executor.store.room_bytes(first) and takes_s <= MOST_S and 2 * takes_s < again_s:
            await self.executor.save_ahead(conversation)
