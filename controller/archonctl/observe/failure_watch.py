"""Follows the journal in a thread of its own: counts memory that ran out, who was turned away, and units given up."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Mapping

from archonctl.errors import HostRefusal
from archonctl.observe.failure_journal import follow
from archonctl.observe.failures import Classifier, Failure, Line, tellers
from archonctl.observe.refusals import METRIC, Kind, logged_kinds, refused
from archonctl.observe.values import Sample, sample

_GIVEN_UP = "Start request repeated too quickly"
"""systemd's src/core/unit.c, unit_test_start_limit. A unit's Result keeps an earlier failure, and does not tell it."""
AGAIN_S = 30.0
"""After a journal that cannot be followed, or ended, it is tried again this much later."""


class FailureWatch:
    """Counts since it was begun. A journal that cannot be read is said, and tried again."""

    def __init__(self, engines: Callable[[], Mapping[str, str]], say: Callable[[str], None]) -> None:
        """``engines``: the kind of each endpoint's engine by its name, now."""
        self._engines, self._say = engines, say
        self._classifier, self._lock = Classifier(), threading.Lock()
        self._counts: dict[tuple[str, str, str], tuple[int, float]] = {}
        self._refusals: dict[tuple[str, Kind], int] = {}
        self._given_up: dict[str, int] = {}
        self._journal: subprocess.Popen[bytes] | None = None
        self._stop = threading.Event()
        self.is_begun = self.is_up = False

    def begin(self) -> None:
        """Start the thread."""
        self.is_begun = True
        threading.Thread(target=self._run, name="journal", daemon=True).start()

    def end(self) -> None:
        """Stop following."""
        self._stop.set()
        if self._journal is not None:
            self._journal.terminate()

    def samples(self) -> dict[str, list[Sample]]:
        """Counters of each endpoint, and when it failed last; what belongs to no endpoint is under ""."""
        with self._lock:
            self._count(self._classifier.flush(time.time()))
            counts = {**self._none_yet(), **self._counts}
            refusals = {**self._none_refused(), **self._refusals}
            given_up = {**(dict.fromkeys(self._engines(), 0) if self.is_up else {}), **self._given_up}
        found: dict[str, list[Sample]] = {"": []}
        for (endpoint, cls, by), (count, at) in counts.items():
            rows = found.setdefault(endpoint, [])
            rows.append(sample("archon_memory_failures_total", endpoint, cls, by, value=count))
            if count:
                rows.append(sample("archon_memory_failure_timestamp_seconds", endpoint, cls, by, value=at))
        for (endpoint, kind), count in refusals.items():
            found.setdefault(endpoint, []).append(
                sample(METRIC, endpoint, kind.cls, kind.reason, "engine", value=count)
            )
        for endpoint, count in given_up.items():
            rows = found.setdefault(endpoint, [])
            rows.append(sample("archon_unit_start_limit_hits_total", endpoint, value=count))
        return found

    def _none_yet(self) -> dict[tuple[str, str, str], tuple[int, float]]:
        """0 for what would be counted: of a counter that begins with 1, increase() sees nothing."""
        if not self.is_up:
            return {}
        named: dict[str, str | None] = {"": None, **self._engines()}
        return {(name, cls, by): (0, 0.0) for name, engine in named.items() for cls, by in tellers(engine)}

    def _none_refused(self) -> dict[tuple[str, Kind], int]:
        engines = self._engines() if self.is_up else {}
        return {(name, kind): 0 for name, engine in engines.items() for kind in logged_kinds(engine)}

    def _take(self, line: Line) -> None:
        self._count(self._classifier.take(line))
        if (kind := refused(line)) is not None:
            key = (line.endpoint, kind)
            self._refusals[key] = self._refusals.get(key, 0) + 1
        if line.by == "systemd" and _GIVEN_UP in line.text:
            self._given_up[line.endpoint] = self._given_up.get(line.endpoint, 0) + 1

    def _count(self, failures: list[Failure]) -> None:
        for each in failures:
            key = (each.endpoint, each.cls, each.by)
            self._counts[key] = (self._counts.get(key, (0, 0.0))[0] + 1, each.at)
            self._say(f"{each.endpoint or 'host'}: out of memory ({each.cls}, says the {each.by}): {each.site}")

    def _run(self) -> None:
        said, since, last = "", "now", None
        while not self._stop.is_set():
            why = "journalctl has ended"
            try:
                for line in follow(self._engines, self._begun, since):
                    if line == last:
                        continue  # it was followed again from this line on
                    since, last = f"@{line.at:.6f}", line
                    with self._lock:
                        self._take(line)
            except HostRefusal as err:
                why = err.message
            self.is_up = False
            if why != said and not self._stop.is_set():
                self._say(f"journal: {why}")
                said = why
            self._stop.wait(AGAIN_S)

    def _begun(self, journal: subprocess.Popen[bytes]) -> None:
        self._journal, self.is_up = journal, True
        if self._stop.is_set():
            journal.terminate()
