"""Looks in their own time, scrapes at any time: a dead or slow engine costs a scrape nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

from archonctl.errors import ArchonError, HostRefusal
from archonctl.host.capacity import card_capacity, host_capacity
from archonctl.host.load import load_host
from archonctl.observe.board import Board
from archonctl.observe.catalogue import Look
from archonctl.observe.endpoint_look import Verdicts, state_look, unit_look
from archonctl.observe.engine_look import engine_look
from archonctl.observe.failure_watch import FailureWatch
from archonctl.observe.guard_look import guard_look
from archonctl.observe.host_look import host_look
from archonctl.observe.plan_look import capacity_look, parked_look, plan_look
from archonctl.observe.values import Sample
from archonctl.probe.faults import Fault
from archonctl.release.load import StoredRelease
from archonctl.service.installed import Installed
from archonctl.service.plan_here import plan_here
from archonctl.service.unit import UnitState

EVERY_S = 15.0
PLAN_EVERY_S = 300.0
"""A plan reads the model's header and the machine's free memory; neither changes from one scrape to the next.

Sooner than the board calls a sample stale.
"""
HUNG_S = 2.0
"""Where systemd took longer than this to say nothing, the other units are not asked before the next round."""
WORKERS = 16
"""Engines that are asked at once. One that hangs holds a worker for the few seconds of its bound."""

Show = Callable[[Installed], UnitState]
Guards = Callable[[], Mapping[str, str]]


@dataclass(slots=True)
class _Endpoint:
    installed: Installed
    verdicts: Verdicts = field(default_factory=Verdicts)
    pending: dict[Look, Future[None]] = field(default_factory=dict)
    engine: str = ""
    planned: tuple[str, float] = ("", 0.0)
    """The release whose plan is shown, and when it was made."""


class Looker:
    """Takes every look again and again, and puts what it sees on the board."""

    def __init__(
        self,
        board: Board,
        endpoints: Callable[[], Iterable[Installed]],
        show: Show,
        say: Callable[[str], None],
        guards: Guards = dict,
    ) -> None:
        """``endpoints`` lists what is installed now; ``show`` is what systemd says of a unit (raises HostRefusal);
        ``say`` hears when a look begins to fail, and when it is well again; ``guards`` says where the guard of each
        endpoint publishes, of those that have one (raises HostRefusal).
        """
        self._board, self._list, self._show, self._say, self._guards = board, endpoints, show, say, guards
        self._failing: dict[tuple[str, Look], str] = {}
        self._hung = ""
        self._defects: list[Exception] = []
        self._watch = FailureWatch(self._engines, say)
        self._known: dict[str, _Endpoint] = {}
        self._pool = ThreadPoolExecutor(WORKERS, "look")

    def run(self, stop: threading.Event, every_s: float = EVERY_S) -> None:
        """Until ``stop`` is set. A defect of ours in one look is a look that failed: the others go on."""
        self._watch.begin()
        while not stop.is_set():
            began = time.monotonic()
            self.once()
            stop.wait(max(0.1, every_s - (time.monotonic() - began)))

    def once(self, wait_s: float = 0.0) -> None:
        """One round; waits at most ``wait_s`` for looks that take their own time. Who waits hears of our defects."""
        self._hung = ""
        self._defects.clear()
        self._take("", "state", self._listed)
        self._take("", "host", host_look)
        self._journal()
        for each in self._known.values():
            self._files(each)
        self._guarded()
        end = time.monotonic() + wait_s
        for future in [future for each in self._known.values() for future in each.pending.values()]:
            if (left := end - time.monotonic()) > 0:
                _settled(future, left)
        if wait_s and self._defects:
            raise self._defects[0]

    def close(self) -> None:
        """Take no new look; those under way end by their own bounds."""
        self._watch.end()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _listed(self) -> list[Sample]:
        """What is installed now. Where that cannot be told, what was known stays: it is not gone."""
        found = {each.name: each for each in self._list()}
        self._known = {name: self._known.get(name) or _Endpoint(each) for name, each in found.items()}
        self._board.keep_only(self._known)
        return []

    def _engines(self) -> dict[str, str]:
        return {name: each.engine for name, each in list(self._known.items())}

    def _journal(self) -> None:
        if not self._watch.is_begun:
            return  # one look has no time to follow anything
        for name, samples in self._watch.samples().items():
            if name in self._known or not name:
                self._board.put(name, "journal", samples)
        if not self._watch.is_up:
            self._board.fail("", "journal")

    def _files(self, each: _Endpoint) -> None:
        name, installed = each.installed.name, each.installed
        state: UnitState | None = None

        def unit() -> list[Sample]:
            nonlocal state
            state = self._asked(installed)
            return unit_look(installed, state)

        self._take(name, "unit", unit)
        if state is None:
            for look in ("state", "engine"):  # both go by what the unit does
                self._board.fail(name, look)
            return
        now = state
        self._take(name, "state", lambda: state_look(installed, now, each.verdicts))
        try:
            release = installed.stored(installed.current())
        except ArchonError as err:
            self._failed(name, "plan", err)
            return
        each.engine = release.loaded.endpoint.engine.kind
        if each.planned[0] != release.digest or time.monotonic() - each.planned[1] > PLAN_EVERY_S:
            each.planned = (release.digest, time.monotonic())
            self._begin(each, "plan", lambda: _plan(name, release))
        if now.active == "active":
            self._begin(each, "engine", lambda: engine_look(name, release.loaded.endpoint))
        else:
            self._board.fail(name, "engine")

    def _guarded(self) -> None:
        if self._hung:
            return  # what was seen of the guards stays, with its age
        try:
            found = self._guards()
        except HostRefusal:
            return  # said already, of the units
        for name, each in self._known.items():
            if (base := found.get(name)) is not None:
                self._begin(each, "guard", partial(guard_look, name, base))
            else:
                self._board.forget(name, "guard")

    def _asked(self, installed: Installed) -> UnitState:
        """What systemd says; one that hangs is asked once a round and not once an endpoint. Raises HostRefusal."""
        if self._hung:
            raise HostRefusal("systemctl-failed", self._hung)
        began = time.monotonic()
        try:
            return self._show(installed)
        except HostRefusal as err:
            if time.monotonic() - began > HUNG_S:
                self._hung = err.message
            raise

    def _begin(self, each: _Endpoint, look: Look, work: Callable[[], Sequence[Sample]]) -> None:
        """Take a look in a worker, unless the last one is still under way: that one is late."""
        name, last = each.installed.name, each.pending.get(look)
        if last is not None and not last.done():
            self._board.fail(name, look)
            return
        each.pending[look] = self._pool.submit(self._take, name, look, work)

    def _take(self, name: str, look: Look, work: Callable[[], Sequence[Sample]]) -> None:
        try:
            self._board.put(name, look, work())
        except (ArchonError, Fault, OSError) as err:
            self._failed(name, look, err)
        except Exception as err:  # noqa: BLE001 - a defect of ours: said, shown as a look that failed, raised by ``once``
            self._failed(name, look, err)
            self._defects.append(err)
        else:
            if self._failing.pop((name, look), ""):
                self._say(f"{name or 'host'}: {look}: well again")

    def _failed(self, name: str, look: Look, err: Exception) -> None:
        self._board.fail(name, look)
        why = str(getattr(err, "message", "") or err or type(err).__name__)[:800]
        if (name, look) not in self._failing:
            self._say(f"{name or 'host'}: {look}: {why}")
        self._failing[name, look] = why


def _settled(future: Future[None], timeout_s: float) -> None:
    try:
        future.result(timeout_s)
    except TimeoutError:
        return


def _plan(name: str, release: StoredRelease) -> list[Sample]:
    host, plan = load_host(release.loaded), plan_here(release.loaded)
    samples = plan_look(name, plan) + parked_look(name, release.loaded.endpoint, plan)
    samples += capacity_look(name, "host", None, host_capacity(host))
    for card in host.cards:
        samples += capacity_look(name, "device", card.index, card_capacity(card))
    return samples
