"""Others' requests while the probe's own are under way, told apart by counting the probe's own connections.

An engine may count a request of ours for a while after we closed it, and no figure of two answers is of one moment.
So what may be ours is ours, and the probe gives way when the same is seen twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from archonctl.probe.engine import LINGERS_S, load
from archonctl.probe.faults import Fault, unseen
from archonctl.probe.metrics import Load
from archonctl.probe.session import Session

_FIRST_S, _MOST_S, _SHARE = 0.02, 1.0, 0.03
"""Looks are dense at first, and never more than a second apart."""
_AGAIN_S = 0.1
"""How soon to look again where others seem to be harmed."""
_TWICE = 2
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
    _harmed: int = 0
    """Looks in a row in which others waited, or were there at all where nobody is to be disturbed."""

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
                self._judge(now, began)
            pause = _AGAIN_S if self._harmed else _SHARE * (loop.time() - started)
            await asyncio.sleep(min(_MOST_S, max(_FIRST_S, pause)))

    def _most_own(self, now: float) -> int:
        self._owned = [(at, own) for at, own in self._owned if now - at <= LINGERS_S]
        return max(own for _, own in self._owned)

    def _just_closed(self, now: float) -> int:
        """Requests of this probe, of whatever leg, that ended a moment ago."""
        return sum(1 for at in self.session.http.closed_at if now - at <= LINGERS_S)

    def _judge(self, now: Load, began: float) -> None:
        foreign = now.total - self._most_own(began)
        self.others = max(self.others, foreign)
        sure = now.total - self.own() - self._just_closed(began) > 0
        harmed = foreign > 0 and sure and (self.session.when_idle or (now.waiting or 0) > 0)
        self._harmed = self._harmed + 1 if harmed else 0
        if self._harmed >= _TWICE:
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
        # the sequence that answers all that time runs: an engine that says nothing does is not telling the truth
        return all(0 < look.running < seqs for look in found)


def busy(others: int, then: str) -> Fault:
    """The fault for others' requests during a flight."""
    return unseen(
        "engine-busy",
        f"{others:,} requests of others came while full-height requests were under way: {then}",
        expected="0 requests of others",
        actual=f"{others:,} requests",
    )
