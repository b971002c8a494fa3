"""Others' requests while the probe's own are under way, told apart by counting the probe's own open connections."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from archonctl.probe.engine import LINGERS_S, load
from archonctl.probe.faults import Fault, unseen
from archonctl.probe.session import Session

_FIRST_S, _MOST_S, _SHARE = 0.02, 1.0, 0.03
"""Looks are dense at first, and never more than a second apart."""
_LOOKS = 4096


@dataclass(frozen=True, slots=True)
class Look:
    """One look at the engine's load: asked at ``began``, answered at ``at``; ``own`` requests were open meanwhile."""

    began: float
    at: float
    own: int
    running: int
    waiting: int | None
    exact: bool
    slots: int | None = None


@dataclass(slots=True)
class Watch:
    """The looks of one flight, and the most requests of others that were surely there."""

    session: Session
    own: Callable[[], int]
    looks: list[Look] = field(default_factory=list)
    others: int = 0
    _owned: list[tuple[float, int]] = field(default_factory=list)

    async def run(self) -> None:
        """Look until cancelled. Raises Fault ``engine-busy`` where going on would harm the others."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        while True:
            began, own = loop.time(), self.own()
            self._owned.append((began, own))
            try:
                now = await load(self.session)
            except Fault:
                now = None  # an engine that is busy with a long step may not answer in time; the streams tell more
            if now is not None and len(self.looks) < _LOOKS:
                self.looks.append(Look(began, loop.time(), own, now.running, now.waiting, now.exact, now.slots))
                self._judge(now.total - self._most_own(began), now.waiting)
            await asyncio.sleep(min(_MOST_S, max(_FIRST_S, _SHARE * (loop.time() - started))))

    def _most_own(self, now: float) -> int:
        self._owned = [(at, own) for at, own in self._owned if now - at <= LINGERS_S]
        return max(own for _, own in self._owned)

    def _judge(self, foreign: int, waiting: int | None) -> None:
        if foreign <= 0:
            return
        self.others = max(self.others, foreign)
        if self.session.when_idle or (waiting or 0) > 0:
            raise busy(self.others, "the probe gave way")

    @property
    def slots(self) -> int | None:
        """How many sequences can run at all, by what the engine said each time; None if it did not, or differently."""
        told = {look.slots for look in self.looks}
        return told.pop() if len(told) == 1 else None

    def queued(self, since: float, until: float, seqs: int) -> bool:
        """True if the engine itself said that not all of ours ran, in every look between the two moments.

        One look is enough of a figure that is taken when it is asked for; of a gauge two are wanted.
        """
        found = [look for look in self.looks if look.began >= since and look.at <= until and look.own == seqs]
        if not found or not all(look.exact for look in found):
            return False
        return all(look.running < seqs for look in found)


def busy(others: int, then: str) -> Fault:
    """The fault for others' requests during a flight."""
    return unseen(
        "engine-busy",
        f"{others:,} requests of others came while full-height requests were under way: {then}",
        expected="0 requests of others",
        actual=f"{others:,} requests",
    )
