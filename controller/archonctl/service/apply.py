"""``archonctl apply`` and ``rollback``: from one release to another, or back.

Everything that can be known is checked before the running engine is touched. Then the change is written down step by
step (``transaction``), so that a kill or a power cut between any two of them leaves a state with a name, which the
next ``apply`` or ``rollback`` finishes. A release that does not hold gives way to the last one that did, and that one
is verified too.

A signal before the stop changes nothing. After it the change is undone, which is said; a second signal leaves it half
done, and says what finishes it.
"""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import get_args

from archonctl import __version__
from archonctl.deployment.load import LoadedEndpoint
from archonctl.errors import ArchonError, HostRefusal, UsageError
from archonctl.probe.values import Depth
from archonctl.release.load import StoredRelease
from archonctl.release.store import store_release
from archonctl.service import history, transaction
from archonctl.service.carry import ApplyOptions, ApplyResult, Carrier, Outcome
from archonctl.service.events import Event, OnEvent, Phase, ignore
from archonctl.service.history import Record
from archonctl.service.installed import Installed, argv_of, drop_in_of
from archonctl.service.interrupts import Interrupted, Interrupts
from archonctl.service.preview import ApplyRooms, Preview, action_for, loss_of, preview
from archonctl.service.running import runs
from archonctl.service.state import readable_by_all
from archonctl.service.transaction import WORDS, Transaction
from archonctl.service.turn import Attempt, Hands

Confirm = Callable[[Preview], None]
"""Raises UsageError ``not-confirmed`` if what the preview says is not wanted."""


def apply(
    loaded: LoadedEndpoint,
    options: ApplyOptions,
    *,
    installed: Installed,
    rooms: ApplyRooms,
    hands: Hands,
    confirm: Confirm,
    on_event: OnEvent = ignore,
) -> ApplyResult:
    """Have the declared release running and verified, or the last one that held.

    Raises ArchonError for everything that is found before the running engine is touched, ``up-in-progress`` if another
    apply has the endpoint, and HostRefusal ``state-unwritable`` if it holds and that could not be recorded.
    """
    if options.check:
        found = preview(loaded, rooms, installed, hands.systemd.show(installed.unit))
        return ApplyResult(loaded.name, "checked", found.old, found)
    with Interrupts() as interrupts, readable_by_all(), installed.state.lock():
        change = _Change(installed, rooms, hands, options, interrupts, on_event)
        with change.telling():
            return change.apply(loaded, confirm)


def rollback(
    installed: Installed,
    wanted: str,
    options: ApplyOptions,
    *,
    rooms: ApplyRooms,
    hands: Hands,
    confirm: Confirm,
    on_event: OnEvent = ignore,
) -> ApplyResult:
    """Back to an earlier release: the last other one that held, the ``wanted``-th such ("2"), or a digest.

    Raises as ``apply``; UsageError ``release-unknown`` or ``nothing-to-roll-back-to``.
    """
    with Interrupts() as interrupts, readable_by_all(), installed.state.lock():
        change = _Change(installed, rooms, hands, options, interrupts, on_event)
        with change.telling():
            return change.rollback(wanted, confirm)


@dataclass
class _Change:
    """One change, under the endpoint's lock."""

    installed: Installed
    rooms: ApplyRooms
    hands: Hands
    options: ApplyOptions
    interrupts: Interrupts
    on_event: OnEvent
    began: float = field(default_factory=time.monotonic)
    told_signal: bool = False
    went_back: bool = False
    """True if what an earlier change left was found to be back at the old release already."""

    def __post_init__(self) -> None:
        self.carrier = Carrier(self.installed, self.hands, self.options, self.interrupts, self.say)
        self.turn, self.remarks = self.carrier.turn, self.carrier.remarks

    @contextlib.contextmanager
    def telling(self) -> Iterator[None]:
        """Say how a signal left the endpoint: untouched, or half done."""
        try:
            yield
        except Interrupted:
            self.interrupts.shield()
            name, half = self.installed.name, self.installed.pending() is not None
            finish = f"left half done: archonctl apply {name}, or archonctl rollback {name}, finishes it"
            self.say("stop", finish if half else "the running engine was not touched")
            raise

    def say(self, phase: Phase, text: str, fraction: float | None = None, *, progress: bool = False) -> None:
        """One event; before it, once, that a first signal came while nothing may be torn any more."""
        if self.shielded_signal_is_new():
            self.say("stop", "a signal came: going on to the end of this; once more leaves it half done")
        self.on_event(Event(phase, text, time.monotonic() - self.began, fraction, progress))

    def shielded_signal_is_new(self) -> bool:
        """True once, for a signal that did not interrupt anything."""
        is_new = self.interrupts.held_back and not self.told_signal
        self.told_signal = self.told_signal or is_new
        return is_new

    # What is asked for

    def apply(self, loaded: LoadedEndpoint, confirm: Confirm) -> ApplyResult:
        """See ``apply``."""
        found = self.resume()
        try:
            seen = preview(loaded, self.rooms, self.installed, self.turn.state())
            assert seen.release is not None
            self.say("plan", f"{seen.plan.verdict if seen.plan else 'not judged'}; release {seen.new}, {seen.action}")
            store_release(seen.release, self.installed.releases)
            release = self.installed.stored(seen.new)
            self.remarks += [*seen.remarks, *self.rooms.preflight(release.folder)]
        except ArchonError as err:
            self.refused(err, found)
            raise
        if found is None and seen.action in ("nothing", "verify"):
            return self.unchanged(seen, release)
        confirm(seen)
        back = self.way_back(seen.new)
        change = self.change(found, seen.new, back, by_hand=False)
        return self.carrier.carry(change, release, seen, adopt=self.can_adopt(found, release))

    def rollback(self, wanted: str, confirm: Confirm) -> ApplyResult:
        """See ``rollback``."""
        found = self.resume()
        current = self.installed.current()
        target = self.target(wanted, found, current)
        release = self.installed.stored(target)
        self.remarks += self.rooms.check(release.loaded, argv_of(release), self.installed)
        self.remarks += self.rooms.preflight(release.folder)
        state = self.turn.state()
        action = action_for(self.installed, state, target, argv_of(release), drop_in_of(release))
        loss = loss_of(self.installed, state)
        seen = Preview(self.installed.name, self.installed.unit, action, target, current, None, None, loss=loss)
        if found is None and action in ("nothing", "verify"):
            return self.unchanged(seen, release)
        confirm(seen)
        back = current if current != target and current in self.installed.history().held() else ""
        return self.carrier.carry(self.change(found, target, back, by_hand=True), release, seen)

    def target(self, wanted: str, found: Transaction | None, current: str) -> str:
        """The release that a rollback means."""
        if not wanted and found is not None and (found.back or found.old):
            return found.back or found.old
        if not wanted and self.went_back and current:
            return current
        if wanted and not (wanted.isdigit() and len(wanted) < 4):
            return self.installed.resolve(wanted)
        held = [d for d in self.installed.history().held(other_than=current) if d in self.installed.digests()]
        number = int(wanted or "1")
        if not 1 <= number <= len(held):
            why = f"{len(held)} earlier releases of {self.installed.name} held, number {number} is asked for"
            raise UsageError("nothing-to-roll-back-to", why, hint="archonctl history; a digest names any stored one")
        return held[number - 1]

    def unchanged(self, seen: Preview, release: StoredRelease) -> ApplyResult:
        """It runs as declared: ask it, unless this very start was asked already; restart nothing."""
        if seen.action == "nothing" and self.asked_as_deep(seen.new):
            return ApplyResult(seen.endpoint, "unchanged", seen.new, seen, (), tuple(self.remarks))
        if "pages_limit" in seen.changed:
            self.remarks += self.rooms.raise_limit(release.folder)
        state = self.turn.state()
        judged = self.hands.written(self.installed, seen.new, state.invocation, self.options.depth)
        judged = judged or self.turn.verify()
        attempt = Attempt(seen.new, judged.word, judged.reasons, judged.codes, (), state.invocation, 0.0, judged.depth)
        self.carrier.record(history.VERIFIED, attempt, release, seen.old)
        outcome: Outcome = "unchanged" if attempt.holds else "failed"
        return ApplyResult(seen.endpoint, outcome, seen.new, seen, (attempt,), tuple(self.remarks))

    def asked_as_deep(self, digest: str) -> bool:
        """True if the last verdict looked as deep as is wanted now."""
        last = self.installed.history().last(digest)
        depths = get_args(Depth)
        return last is not None and last.facts.get("depth") in depths[depths.index(self.options.depth) :]

    # What an earlier change left

    def resume(self) -> Transaction | None:
        """Find a half-done change, say so; one that is complete is closed, one that touched nothing undone."""
        for leftover in self.installed.folder.glob(f".{transaction.FILE}.*"):
            leftover.unlink(missing_ok=True)
        found = self.installed.pending()
        if found is None:
            return None
        self.say("plan", f"an earlier change to release {found.new} (pid {found.pid}) ended {WORDS[found.phase]}")
        ends = [r.event for r in self.installed.history().records if r.transaction == found.id]
        if ends and ends[-1] != history.FAILED:
            self.went_back = ends[-1] == history.ROLLED_BACK
            self.remarks += self.turn.start_again(found.dependants)
            self.carrier.close()
            self.say("plan", "it was complete, and is closed now")
            return None
        if found.phase == "placing" and self.installed.current() == found.old:
            self.turn.place(None, found.drop_in)
            self.carrier.close()
            self.went_back = True
            self.say("plan", "the engine had not been touched; the unit is as it was")
            return None
        return found

    def change(self, found: Transaction | None, new: str, back: str, *, by_hand: bool) -> Transaction:
        """The change to write down; it takes over what a half-done one remembered."""
        state = self.turn.state()
        fresh = Transaction(
            uuid.uuid4().hex,
            self.installed.name,
            "placing",
            new,
            self.installed.current(),
            back,
            not state.ended,
            self.installed.placed(),
            self.hands.systemd.dependants(self.installed.unit),
            by_hand=by_hand,
            pid=os.getpid(),
            began_at=time.time(),
        )
        if found is None:
            return fresh
        units = tuple(dict.fromkeys((*found.dependants, *fresh.dependants)))
        return replace(
            fresh,
            phase="stopping",
            old=found.old,
            was_running=found.was_running,
            dependants=units,
            drop_in=found.drop_in,
        )

    def can_adopt(self, found: Transaction | None, release: StoredRelease) -> bool:
        """True if a killed apply had got as far as to start this very release, which still runs or starts."""
        state = self.turn.state()
        return (
            found is not None
            and found.new == self.installed.current() == release.folder.name
            and found.phase in ("starting", "verifying")
            and self.installed.placed() == drop_in_of(release)
            and not state.ended
            and (state.main_pid == 0 or runs(argv_of(release), state.main_pid, self.installed.proc))
        )

    def way_back(self, new: str) -> str:
        """The release to return to: the last that held, else the current one that was never asked; empty if none."""
        asked = self.installed.history()
        current = self.installed.current()
        never_asked = [current] if current and asked.last(current) is None else []
        choices = [d for d in (*asked.held(), *never_asked) if d != new and self.is_whole(d)]
        return choices[0] if choices else ""

    def is_whole(self, digest: str) -> bool:
        """True if the release is stored, and as it was rendered."""
        try:
            self.installed.stored(digest)
        except HostRefusal as err:
            self.remarks.append(f"release {digest} is passed over: {err.message}")
            return False
        return True

    def refused(self, err: ArchonError, found: Transaction | None) -> None:
        """Remember that it was refused, where that can be written; say so if an earlier change is still half done."""
        entry = Record(history.REFUSED, "", time.time(), reasons=(str(err)[:2000],), archonctl=__version__)
        try:
            history.record(self.installed.history_file, entry)
        except HostRefusal as full:
            self.say("stop", f"not recorded: {full.message}")
        if found is not None:
            name = self.installed.name
            self.say("stop", f"the earlier change is still half done: archonctl rollback {name} goes back")
