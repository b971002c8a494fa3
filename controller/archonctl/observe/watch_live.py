"""Looks in threads of their own; what they saw at any time, without waiting for anything."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable

from archonctl.errors import ArchonError
from archonctl.observe.board import Board
from archonctl.observe.exporter import Guards, Looker, Show
from archonctl.observe.failure_journal import read
from archonctl.observe.failures import classify
from archonctl.observe.watch import Level, Note, Snapshot, Watched, changes, snapshot
from archonctl.service.drift import drift
from archonctl.service.installed import Installed
from archonctl.service.status import engine_kinds, last_verdict

PAST_S = 86_400.0
"""How far back the findings go when it starts."""
DRIFT_EVERY_S = 60.0
_KEPT = 200
_ONCE_S = 10.0
"""What one look waits for engines and the journal."""


class Watcher:
    """``begin``, then ``snapshot`` as often as wanted, then ``end``. ``snapshot`` waits for nothing."""

    def __init__(
        self, endpoints: Callable[[], Iterable[Installed]], show: Show, every_s: float, guards: Guards = dict
    ) -> None:
        """As ``Looker`` has them: what is installed now, what systemd says of a unit, where guards publish."""
        self._list, self._show, self._every_s = endpoints, show, every_s
        self._board = Board(stale_s=max(1800.0, 4 * every_s))  # a plan is made every few minutes
        self._looker = Looker(self._board, self._listed, show, self._hear, guards)
        self._stop, self._lock = threading.Event(), threading.Lock()
        self._names: tuple[str, ...] = ()
        self._looked = False
        self._events: deque[Note] = deque(maxlen=_KEPT)
        self._drifts: dict[tuple[str, str, str], Note] = {}
        self._no_journal = False
        self._before: dict[str, Watched] = {}
        self.defect: Exception | None = None
        """What ended the looks; None while they go on."""

    def begin(self) -> None:
        """Start the threads. They are daemons: whoever leaves does not wait for a look that is under way."""
        for name, work in (("looks", self._look), ("findings", self._find)):
            threading.Thread(target=self._guarded, args=(work,), name=name, daemon=True).start()

    def once(self) -> Snapshot:
        """One look at everything, within a bound."""
        finding = threading.Thread(target=self._guarded, args=(self._find_once,), name="findings", daemon=True)
        finding.start()
        self._looker.once(wait_s=_ONCE_S)
        self._looked = True
        finding.join(_ONCE_S)
        return self.snapshot()

    def end(self) -> None:
        """Take no new look."""
        self._stop.set()
        self._looker.close()

    def snapshot(self) -> Snapshot:
        """What is known now. Raises whatever ended the looks: a defect of ours."""
        if self.defect is not None:
            raise self.defect
        now = time.time()
        with self._lock:
            notes = [*self._events, *self._drifts.values()]
        found = snapshot(self._board.samples(), notes, names=self._names, at=now, looked=self._looked)
        fresh = changes(self._before, found.endpoints, now)
        self._before = {each.name: each for each in found.endpoints}
        self._note(*fresh)
        standing = [_refused(each) for each in found.endpoints if each.refused is not None]
        shown = sorted([*found.notes, *fresh, *standing], key=lambda note: note.at)
        return Snapshot(found.at, found.looked, found.memory, found.endpoints, tuple(shown))

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as err:  # noqa: BLE001 - raised again where somebody looks: in ``snapshot``
            self.defect = err

    def _listed(self) -> list[Installed]:
        found = list(self._list())
        self._names = tuple(each.name for each in found)
        return found

    def _look(self) -> None:
        self._looker.once()
        self._looked = True
        self._stop.wait(self._every_s)  # an engine that was just asked would be called late
        self._looker.run(self._stop, self._every_s)

    def _find(self) -> None:
        self._find_once()
        while not self._stop.wait(DRIFT_EVERY_S):
            self._drift()

    def _find_once(self) -> None:
        self._past()
        self._drift()

    def _past(self) -> None:
        """What ran out of memory within a day."""
        installed = list(self._list())
        try:
            failures = list(classify(read(f"-{PAST_S:.0f}s", engine_kinds(installed))))
        except ArchonError as err:
            self._no_journal = True
            self._note(Note(time.time(), "", "warn", f"journal: {err.message}", err.code))
            return
        names = {"", *(each.name for each in installed)}
        self._note(*(_ran_out(f.at, f.endpoint, f.cls, f.by, f.site) for f in failures if f.endpoint in names))

    def _drift(self) -> None:
        found: dict[tuple[str, str, str], Note] = {}
        for each in self._list():
            try:
                state = self._show(each)
                drifts = drift(each, state, last_verdict(each, state)).findings
            except (ArchonError, OSError) as err:
                self._hear(f"{each.name}: drift: {getattr(err, 'message', '') or err}")
                continue
            for finding in drifts:
                key = (each.name, finding.code, finding.message)
                found[key] = self._drifts.get(key) or Note(
                    time.time(), each.name, "warn", finding.message, finding.code
                )
        with self._lock:
            self._drifts = found

    def _note(self, *notes: Note) -> None:
        with self._lock:
            self._events.extend(notes)

    def _hear(self, words: str) -> None:
        """What the looks say: ``name: look: why``, or of memory that ran out; the host has no name."""
        name, _, text = words.partition(": ")
        if name == "journal":
            if self._no_journal:
                return  # said already, with its reason
            name, text = "", words
        level: Level = "info" if text.endswith("well again") else "bad" if text.startswith("out of memory") else "warn"
        self._note(Note(time.time(), "" if name == "host" else name, level, text))


def _ran_out(at: float, endpoint: str, cls: str, by: str, site: str) -> Note:
    return Note(at, endpoint, "bad", f"out of memory ({cls}, says the {by}): {site}", "alert-memory-failures")


def _refused(each: Watched) -> Note:
    code, at = each.refused or ("", 0.0)
    return Note(at, each.name, "bad", f"a start was refused: {code}", code)
