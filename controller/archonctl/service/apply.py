"""``archonctl apply`` and ``rollback``: from one release to another, or back.

Everything that can be known is checked before the running engine is touched. Then the change is written down step by
step (``transaction``), so that a kill or a power cut between any two of them leaves a state with a name, which the
next ``apply`` or ``rollback`` finishes. A release that does not hold gives way to the last one that did, and that one
is verified too.

A signal before the stop changes nothing. After it the change is undone, which is said; a second signal leaves it half
done, and says what finishes it.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal

from archonctl import __version__
from archonctl.deployment.load import LoadedEndpoint
from archonctl.errors import ArchonError, HostRefusal, UsageError
from archonctl.probe.values import Depth
from archonctl.release.load import StoredRelease
from archonctl.release.store import store_release
from archonctl.service import history, transaction
from archonctl.service.events import Event, OnEvent, Phase, ignore
from archonctl.service.history import Record
from archonctl.service.installed import Installed, argv_of, drop_in_of
from archonctl.service.interrupts import Interrupted, Interrupts
from archonctl.service.preview import ApplyRooms, Preview, action_for, loss_of, preview
from archonctl.service.running import runs
from archonctl.service.transaction import WORDS, Transaction
from archonctl.service.turn import Attempt, Hands, Turn

Outcome = Literal["checked", "unchanged", "applied", "rolled back", "lost", "failed"]
"""``lost``: the release went back to does not hold either. ``failed``: there was nothing to go back to, or no leave."""


@dataclass(frozen=True, slots=True)
class ApplyOptions:
    """``check`` changes nothing; ``rollback`` False leaves a release that does not hold stopped."""

    check: bool = False
    rollback: bool = True
    depth: Depth = "full"


@dataclass(frozen=True)
class ApplyResult:
    """What was done. ``attempts`` are the starts in order, each with its story; ``release`` is current at the end."""

    endpoint: str
    outcome: Outcome
    release: str
    preview: Preview | None = None
    attempts: tuple[Attempt, ...] = ()
    remarks: tuple[str, ...] = ()


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
    with Interrupts() as interrupts, installed.state.lock():
        return _Change(installed, rooms, hands, options, interrupts, on_event).apply(loaded, confirm)


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
    with Interrupts() as interrupts, installed.state.lock():
        return _Change(installed, rooms, hands, options, interrupts, on_event).rollback(wanted, confirm)


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
    remarks: list[str] = field(default_factory=list)
    went_back: bool = False
    """True if what an earlier change left was found to be back at the old release already."""

    def __post_init__(self) -> None:
        self.turn = Turn(self.installed, self.hands, self.options.depth, self.say)

    def say(self, phase: Phase, text: str, fraction: float | None = None, *, progress: bool = False) -> None:
        """One event."""
        self.on_event(Event(phase, text, time.monotonic() - self.began, fraction, progress))

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
        return self.carry(change, release, seen, adopt=self.can_adopt(found, release))

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
        return self.carry(self.change(found, target, back, by_hand=True), release, seen)

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
        if seen.action == "nothing":
            return ApplyResult(seen.endpoint, "unchanged", seen.new, seen, (), tuple(self.remarks))
        state = self.turn.state()
        judged = self.hands.written(self.installed, seen.new, state.invocation, self.options.depth)
        judged = judged or self.turn.verify()
        attempt = Attempt(seen.new, judged.word, judged.reasons, judged.codes, (), state.invocation, 0.0, judged.depth)
        self.record(history.VERIFIED, attempt, release, seen.old)
        outcome: Outcome = "unchanged" if attempt.holds else "failed"
        return ApplyResult(seen.endpoint, outcome, seen.new, seen, (attempt,), tuple(self.remarks))

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
            self.close()
            self.say("plan", "it was complete, and is closed now")
            return None
        if found.phase == "placing" and self.installed.current() == found.old:
            self.turn.place(None, found.drop_in)
            self.close()
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

    # The change itself

    def carry(self, change: Transaction, release: StoredRelease, seen: Preview, *, adopt: bool = False) -> ApplyResult:
        """Place, stop, switch, start, verify; then keep it or go back."""
        if change.phase == "placing":
            self.place(change, release)
        try:
            attempt = self.forward(change, release, adopt=adopt)
        except Interrupted as signal:
            self.say("stop", f"{signal}: going back; once more leaves it half done")
            attempt = Attempt(change.new, "not started", (f"interrupted by {signal}",), ("interrupted",))
        except ArchonError as err:
            attempt = Attempt(change.new, "not started", (str(err),), (err.code,), tuple(err.tail))
        except Exception as err:  # noqa: BLE001  a defect of ours must not leave the endpoint down either
            why = f"a defect of archonctl: {type(err).__name__}: {err}"
            attempt = Attempt(change.new, "not started", (why,), ("internal-fault",))
        self.interrupts.shield()
        self.interrupts.hurry = self.abandon
        if attempt.holds:
            return self.keep(change, release, attempt, seen)
        return self.undo(change, release, attempt, seen)

    def place(self, change: Transaction, release: StoredRelease) -> None:
        """The last steps that touch no engine; whatever goes wrong in them leaves everything as it was."""
        transaction.save(self.installed.folder, change)
        try:
            if change.back:
                self.installed.keep_spares(self.installed.stored(change.back))
            self.turn.place(release)
        except BaseException:
            with self.interrupts.held():
                self.installed.place(change.drop_in)
                self.hands.systemd.reload()
                self.close()
            self.say("plan", "nothing was changed")
            raise

    def forward(self, change: Transaction, release: StoredRelease, *, adopt: bool) -> Attempt:
        """From the stop to the verdict."""
        if not adopt:
            self.note(change.at("stopping"))
            old = self.installed.stored(change.old) if change.old in self.installed.digests() else None
            self.turn.stop(old)
            self.turn.place(release)  # again: a half-done change of another release may have placed its own
            self.note(change.at("switching"))
            self.turn.switch(change.new)
        self.note(change.at("starting"))
        return self.turn.start(change.new)

    def keep(self, change: Transaction, release: StoredRelease, attempt: Attempt, seen: Preview) -> ApplyResult:
        """It holds: dependants, history, done."""
        self.remarks += self.turn.start_again(change.dependants)
        event = history.ROLLED_BACK if change.by_hand else history.APPLIED
        self.record(event, attempt, release, change.old, change.id)
        self.close()
        return ApplyResult(seen.endpoint, "applied", change.new, seen, (attempt,), tuple(self.remarks))

    def undo(self, change: Transaction, release: StoredRelease, attempt: Attempt, seen: Preview) -> ApplyResult:
        """It does not hold: the last release that did, verified too; else stopped."""
        self.record(history.FAILED, attempt, release, change.old, change.id, strict=False)
        if not change.back or not self.options.rollback:
            why = "no release of it ever held" if not change.back else "--no-rollback"
            self.say("stop", f"not going back: {why}; {self.installed.unit} is left stopped")
            self.turn.stop(release)
            self.close()
            return ApplyResult(seen.endpoint, "failed", change.new, seen, (attempt,), tuple(self.remarks))
        self.say("stop", f"going back to release {change.back}: {'; '.join(attempt.reasons)[:300]}")
        change = change.at("undoing", *attempt.reasons)
        self.note(change)
        again = self.back(change, release)
        outcome: Outcome = "rolled back" if again.holds else "lost"
        return ApplyResult(seen.endpoint, outcome, change.back, seen, (attempt, again), tuple(self.remarks))

    def back(self, change: Transaction, failed: StoredRelease) -> Attempt:
        """The release before, started and verified. What goes wrong here leaves the change half done, and is said."""
        try:
            old = self.installed.stored(change.back)
            self.turn.stop(failed)
            self.turn.place(old)
            self.turn.switch(change.back)
            again = self.turn.start(change.back)
            if again.word == "broken" and not self.turn.state().ended:
                self.turn.stop(old)  # an endpoint that breaks its promise is worse than one that is down
        except ArchonError as err:
            name = self.installed.name
            self.remarks.append(f"the way back is half done: archonctl rollback {name} {change.back} tries it again")
            return Attempt(change.back, "not started", (str(err),), (err.code,), tuple(err.tail))
        if again.holds:
            self.remarks += self.turn.start_again(change.dependants)
        self.record(history.ROLLED_BACK, again, old, change.new, change.id)
        self.close()
        return again

    def abandon(self) -> None:
        """A second signal: stop at once, and say what finishes it."""
        name = self.installed.name
        self.say("stop", f"left half done: archonctl apply {name}, or archonctl rollback {name}, finishes it")
        raise Interrupted(self.interrupts.number or 2)

    def close(self) -> None:
        """Nothing is half done any more."""
        self.installed.drop_spares()
        transaction.clear(self.installed.folder)

    # What is written down

    def note(self, change: Transaction) -> None:
        """Write the step down. The first note says all that a resumption needs; a full disk must not keep the engine
        down now."""
        try:
            transaction.save(self.installed.folder, change)
        except HostRefusal as err:
            self.say("stop", f"the step cannot be written down, going on: {err.message}")

    def record(
        self,
        event: str,
        attempt: Attempt,
        release: StoredRelease,
        before: str,
        change_id: str = "",
        *,
        strict: bool = True,
    ) -> None:
        """Add it to the history. Raises HostRefusal ``state-unwritable`` if ``strict``."""
        entry = Record(
            event,
            attempt.release,
            time.time(),
            attempt.word,
            before if before != attempt.release else "",
            tuple(reason[:2000] for reason in attempt.reasons),
            change_id,
            attempt.invocation,
            os.environ.get("SUDO_USER") or f"uid {os.getuid()}",
            __version__,
            self.hands.facts(self.installed, release) | {"depth": attempt.depth},
        )
        try:
            history.record(self.installed.history_file, entry)
        except HostRefusal as err:
            if strict:
                raise
            self.say("stop", f"not recorded: {err.message}")

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
