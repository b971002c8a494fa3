"""Everything that there is to tell of one endpoint now, gathered once. What cannot be told says why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from archonctl.errors import ArchonError
from archonctl.findings import Finding
from archonctl.gate.endpoint import check_endpoint
from archonctl.observe.entries import Entries, Entry, entries
from archonctl.observe.failures import Failure
from archonctl.observe.journal_story import JournalStory
from archonctl.observe.side import Side, side_of
from archonctl.service.drift import drift
from archonctl.service.installed import Installed
from archonctl.service.predictions import History as Foretold
from archonctl.service.predictions import scores
from archonctl.service.status import Status, last_verdict, status
from archonctl.service.unit import UnitState

Teller = Literal["history", "verdict", "systemd", "memory"]
Show = Callable[[Installed], UnitState]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Moment:
    """One thing that happened. ``at`` is Unix time, ``source`` the file or journal that says so."""

    at: float
    teller: Teller
    word: str
    text: str
    source: str
    release: str = ""


@dataclass(frozen=True)
class Story:
    """One endpoint. Whatever is None or empty has its reason in ``unknown``, by what it is about."""

    name: str
    unit: str
    folder: str
    status: Status | None = None
    state: UnitState | None = None
    side: Side | None = None
    record: Entries = field(default_factory=lambda: Entries(()))
    predictions: tuple[Foretold, ...] = ()
    gate: tuple[Finding, ...] = ()
    drift: tuple[Finding, ...] = ()
    unchecked: tuple[str, ...] = ()
    failures: tuple[Failure, ...] = ()
    moments: tuple[Moment, ...] = ()
    unknown: dict[str, str] = field(default_factory=dict)

    @property
    def word(self) -> str:
        """The state in one word. A verdict of the past is none on what may run now."""
        return self.status.word if self.status is not None else "state unknown"

    @property
    def last_verdict(self) -> Entry | None:
        """The newest entry that says whether it holds."""
        return next((each for each in reversed(self.record.found) if each.verdict), None)

    @property
    def live(self) -> Entry | None:
        """The newest verdict that knows what the boot log said, of the current release."""
        digest = self.side.digest if self.side is not None else ""
        rows = (each for each in reversed(self.record.found) if each.live_tokens is not None)
        return next((each for each in rows if digest in ("", each.release)), None)


def tell(installed: Installed, show: Show, journal: JournalStory) -> Story:
    """Look at one endpoint. Raises nothing but defects: what cannot be read is named in ``unknown``."""
    unknown: dict[str, str] = {}
    side = _or_say(unknown, "release", lambda: side_of(installed, installed.current()))
    record = _or_say(unknown, "history", lambda: entries(installed)) or Entries(())
    state = _or_say(unknown, "unit", lambda: show(installed))
    found = None
    drifted: tuple[Finding, ...] = ()
    unchecked: tuple[str, ...] = ()
    if state is not None:
        now = state
        found = _or_say(unknown, "status", lambda: status(installed, now))
        seen = _or_say(unknown, "drift", lambda: drift(installed, now, last_verdict(installed, now)))
        drifted, unchecked = (seen.findings, seen.unchecked) if seen else ((), ())
    else:
        unknown["drift"] = f"not compared with what runs: {unknown['unit']}"
    judged = _or_say(unknown, "gate", lambda: _gate(installed)) if side is not None else None
    if journal.why_not:
        unknown["journal"] = journal.why_not
    failures = tuple(each for each in journal.failures if each.endpoint == installed.name)
    return Story(
        installed.name,
        installed.unit,
        str(installed.folder),
        found,
        state,
        side,
        record,
        scores(installed.folder, side.endpoint.predict if side is not None else ()),
        judged or (),
        drifted,
        unchecked,
        failures,
        _moments(installed, record, failures, journal),
        unknown,
    )


def _gate(installed: Installed) -> tuple[Finding, ...]:
    return check_endpoint(installed.stored(installed.current()).loaded)


def _or_say(unknown: dict[str, str], what: str, work: Callable[[], T]) -> T | None:
    try:
        return work()
    except (ArchonError, OSError) as err:
        unknown[what] = str(getattr(err, "message", "") or err)
        return None


def _moments(
    installed: Installed, record: Entries, failures: tuple[Failure, ...], journal: JournalStory
) -> tuple[Moment, ...]:
    """In the order of time, the newest first."""
    found = [_of_entry(each) for each in record.found]
    found += [
        Moment(each.at, "systemd", "unit", each.text, "journal, systemd (pid 1)")
        for each in journal.unit(installed.name)
    ]
    found += [Moment(each.at, "memory", each.cls, each.site, f"journal, {each.by}") for each in failures]
    return tuple(sorted(found, key=lambda each: each.at, reverse=True))


def _of_entry(entry: Entry) -> Moment:
    tokens = "" if entry.live_tokens is None else f"{entry.live_tokens:,} tokens by the boot log"
    text = "; ".join([each for each in (tokens, *entry.reasons) if each])
    teller: Teller = "verdict" if entry.is_verdict else "history"
    word = f"{entry.event}: {entry.verdict}" if entry.verdict else entry.event
    return Moment(entry.at, teller, word, text, str(entry.file), entry.release)
