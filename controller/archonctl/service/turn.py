"""The steps from one release to another, each of which may be taken again.

There is one set of cards, so there is no surge: the old engine is stopped and gone (unit inactive, control group
empty, port free, card memory released) before the new one is started. A start is believed when systemd's own start
job says "done" and the contract was verified at the published address, and not before.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from archonctl.errors import ArchonError, HostRefusal
from archonctl.probe.values import Depth
from archonctl.release.load import StoredRelease
from archonctl.service.dbus import Systemd
from archonctl.service.events import Say
from archonctl.service.installed import Installed, drop_in_of
from archonctl.service.unit import UnitState, exit_of

LOOK_S = 0.5
STOP_EXTRA_S = 120.0
"""systemd kills what is left of a unit after its stop time-out (90 s as rendered); a job that takes longer is stuck."""

AttemptWord = Literal["holds", "broken", "no evidence", "not started"]


@dataclass(frozen=True, slots=True)
class Judged:
    """What was found out about one start of a unit."""

    word: AttemptWord
    reasons: tuple[str, ...] = ()
    codes: tuple[str, ...] = ()
    depth: str = ""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One release that was started, and what came of it. ``tail`` is the end of its log where it does not hold."""

    release: str
    word: AttemptWord
    reasons: tuple[str, ...] = ()
    codes: tuple[str, ...] = ()
    tail: tuple[str, ...] = ()
    invocation: str = ""
    seconds: float = 0.0
    depth: str = ""

    @property
    def holds(self) -> bool:
        """True if it keeps its contract."""
        return self.word == "holds"


@dataclass(frozen=True)
class Hands:
    """What the steps do to the machine, as functions; ``apply_rooms.real`` gives the real ones.

    ``written`` is the verdict that the unit's own start wrote down for this release and invocation, None where there
    is none of that depth; ``judge`` asks the engine. ``gone`` waits, bounded, until nothing of a stopped unit holds
    the port or card memory, and raises HostRefusal ``engine-not-gone``. ``tail`` is the end of what a start printed.
    """

    systemd: Systemd
    written: Callable[[Installed, str, str, Depth], Judged | None]
    judge: Callable[[Installed, Depth, Say], Judged]
    gone: Callable[[StoredRelease | None, UnitState], None]
    tail: Callable[[str, str], tuple[str, ...]]
    facts: Callable[[Installed, StoredRelease], dict[str, str | int]]


@dataclass
class Turn:
    """The steps for one endpoint."""

    installed: Installed
    hands: Hands
    depth: Depth
    say: Say

    @property
    def unit(self) -> str:
        """Its unit."""
        return self.installed.unit

    def state(self) -> UnitState:
        """What systemd says of it now."""
        return self.hands.systemd.show(self.unit)

    def place(self, release: StoredRelease | None, text: str | None = None) -> None:
        """Give the unit the drop-in of a release (or ``text``), and have systemd read it.

        Raises HostRefusal ``unit-unwritable``, or ``unit-not-loaded`` for a unit that systemd does not take.
        """
        self.installed.place(drop_in_of(release) if release else text)
        self.hands.systemd.reload()
        found = self.state()
        if found.load != "loaded":
            why = (
                f"{self.unit} is {found.load or 'unknown'} to systemd{f': {found.load_error}' * bool(found.load_error)}"
            )
            hint = "archonctl install places the units"
            raise HostRefusal(
                "unit-not-loaded", why, where=found.fragment or str(self.installed.drop_in_file), hint=hint
            )

    def stop(self, release: StoredRelease | None) -> None:
        """Stop whatever runs and wait until it is gone. Raises HostRefusal ``engine-not-gone``."""
        before = self.state()
        if not before.ended:
            self.say("stop", f"stopping {self.unit} (pid {before.main_pid})")
        job = self.hands.systemd.begin("stop", self.unit)
        end = time.monotonic() + 90.0 + STOP_EXTRA_S
        while (result := job.wait(LOOK_S)) is None:
            self.say("stop", f"waiting for {self.unit}: {self.state().sub}", progress=True)
            if time.monotonic() > end:
                raise HostRefusal("engine-not-gone", f"the stop job of {self.unit} did not end", where=self.unit)
        after = self.state()
        if not after.ended:
            raise HostRefusal("engine-not-gone", f"the stop job is {result}, the unit {after.active}", where=self.unit)
        self.hands.gone(release, before)

    def switch(self, digest: str) -> None:
        """Make a stored release the current one."""
        self.installed.switch(digest)

    def start(self, digest: str) -> Attempt:
        """Start the unit, wait for the result of that very job, then for the verdict. Never raises for the engine.

        A unit that is being started already keeps its job; one that is up stays up.
        """
        began = time.monotonic()
        before = self.state().invocation
        if self.state().ended:
            self.hands.systemd.reset_failed(self.unit)
        self.say("start", f"starting {self.unit}, release {digest}")
        job = self.hands.systemd.begin("start", self.unit)
        while (result := job.wait(LOOK_S)) is None:
            text = self.state().status_text
            self.say("load", text or "no word of its progress yet", progress=True)
        state = self.state()
        judged = self._judged(digest, result, state, before)
        tail = self.hands.tail(self.unit, state.invocation) if _log_tells(judged) else ()
        seconds = time.monotonic() - began
        self.say("verdict", f"{judged.word}: release {digest}")
        return Attempt(digest, judged.word, judged.reasons, judged.codes, tail, state.invocation, seconds, judged.depth)

    def _judged(self, digest: str, result: str, state: UnitState, before: str) -> Judged:
        found = self.hands.written(self.installed, digest, state.invocation, self.depth)
        if result != "done" or state.active not in ("active", "activating", "reloading"):
            how = exit_of(state).words if state.invocation != before else f"the unit is {state.active}"
            why = f"the start job of {self.unit} is {result!r}: {how}"
            if found is not None and found.word != "holds":
                return Judged(found.word, (*found.reasons, why), found.codes, found.depth)
            return Judged("not started", (why,), ("engine-start-failed",))
        return found or self.verify()

    def verify(self) -> Judged:
        """Ask what runs now, at its published address. Never raises for the engine."""
        try:
            return self.hands.judge(self.installed, self.depth, self.say)
        except ArchonError as err:
            word: AttemptWord = "no evidence" if err.exit_code == 3 else "broken"
            return Judged(word, (str(err),), (err.code,))

    def start_again(self, units: tuple[str, ...]) -> tuple[str, ...]:
        """Start the dependants that were stopped with it; what could not be started, in words."""
        failed = []
        for unit in units:
            if self.hands.systemd.show(unit).active == "active":
                continue
            self.say("start", f"starting {unit} again, which was stopped with it")
            try:
                job = self.hands.systemd.begin("start", unit)
                while (result := job.wait(LOOK_S)) is None:
                    self.say("start", f"waiting for {unit}", progress=True)
            except HostRefusal as err:
                result = err.message
            if result != "done":
                failed.append(f"{unit} was stopped with it and could not be started again: {result}")
        return tuple(failed)


def _log_tells(judged: Judged) -> bool:
    """True if it is the log that tells the rest; an engine that was asked has its answers in the reasons."""
    asked = judged.word == "broken" and not any(code.startswith("engine-") for code in judged.codes)
    return judged.word != "holds" and not asked
