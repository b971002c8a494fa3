"""One change carried out: placed, stopped, switched, started, verified; then kept, or undone and verified again.

Each step is written down first (``transaction``) and may be taken again. What goes wrong after the stop, a defect of
ours included, leads back to the last release that held.
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass, field
from typing import Literal

from archonctl import __version__
from archonctl.errors import ArchonError, HostRefusal
from archonctl.probe.values import Depth
from archonctl.release.load import StoredRelease
from archonctl.service import history, transaction
from archonctl.service.events import Say
from archonctl.service.history import Record
from archonctl.service.installed import Installed
from archonctl.service.interrupts import Interrupted, Interrupts
from archonctl.service.operator import operator_or_uid
from archonctl.service.preview import Preview
from archonctl.service.recheck import how_to, timer_of
from archonctl.service.transaction import Transaction
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


@dataclass
class Carrier:
    """Carries out changes of one endpoint, under its lock."""

    installed: Installed
    hands: Hands
    options: ApplyOptions
    interrupts: Interrupts
    say: Say
    remarks: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.turn = Turn(self.installed, self.hands, self.options.depth, self.say)

    def carry(self, change: Transaction, release: StoredRelease, seen: Preview, *, adopt: bool = False) -> ApplyResult:
        """Place, stop, switch, start, verify; then keep it or go back."""
        if change.phase == "placing":
            self.place(change, release)
        try:
            attempt = self.forward(change, release, adopt=adopt)
        except Interrupted as stop:
            self.say("stop", f"{stop}: going back; once more leaves it half done")
            attempt = Attempt(change.new, "not started", (f"interrupted by {stop}",), ("interrupted",))
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
        if self.turn.state().file_state == "disabled":
            user = "--user " if self.installed.where.user else ""
            at_boot = f"systemctl {user}enable {self.installed.unit}{'; loginctl enable-linger' if user else ''}"
            self.remarks.append(f"it is not started at boot: {at_boot}")
        if self.hands.systemd.show(timer_of(self.installed.name)).file_state == "disabled":
            how = how_to(self.installed.name, user=self.installed.where.user)
            self.remarks.append(f"it is not verified again by itself: {how}")
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
        """A second signal, in its handler: stop at once. Every step can be taken again, so any place will do."""
        raise Interrupted(self.interrupts.number or signal.SIGINT)

    def close(self) -> None:
        """Nothing is half done any more."""
        self.installed.drop_spares()
        transaction.clear(self.installed.folder)

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
            operator_or_uid(os.environ),
            __version__,
            self.hands.facts(self.installed, release) | {"depth": attempt.depth},
        )
        try:
            history.record(self.installed.history_file, entry)
        except HostRefusal as err:
            if strict:
                raise
            self.say("stop", f"not recorded: {err.message}")
