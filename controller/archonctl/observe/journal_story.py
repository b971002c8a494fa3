"""What the journal tells of all endpoints, read once and within bounds."""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from archonctl.errors import HostRefusal
from archonctl.observe.failure_journal import read
from archonctl.observe.failures import Failure, Line, classify
from archonctl.redact import Redactor

READ_S = 10.0
"""A journal of millions of lines is read no longer than this; what is missing is said."""
_KEPT_LINES = 200
_KEPT_FAILURES = 2000
_TOLD = re.compile(r"(?i)\b(start|stop|exit|kill|fail|oom|restart|reload|deactivat|timed out|scheduled)")


@dataclass(frozen=True)
class JournalStory:
    """Failures of all endpoints and of the host (an empty name), oldest first; systemd's words by endpoint.

    ``since`` is Unix time; ``why_not`` is why there is nothing, or not everything.
    """

    since: float = 0.0
    failures: tuple[Failure, ...] = ()
    units: Mapping[str, tuple[Line, ...]] = field(default_factory=dict)
    why_not: str = ""

    def unit(self, name: str) -> tuple[Line, ...]:
        """What systemd said of an endpoint's unit."""
        return self.units.get(name, ())


def read_story(since: float, engines: Mapping[str, str], within_s: float = READ_S) -> JournalStory:
    """Read the journal since then. Raises nothing: a journal that cannot be read is a reason."""
    told = _Told(within_s)
    failures: deque[Failure] = deque(maxlen=_KEPT_FAILURES)
    clean = Redactor().clean
    try:
        for each in classify(told.lines(read(f"@{since:.0f}", engines))):
            failures.append(Failure(each.at, each.endpoint, each.cls, each.by, clean(each.site), each.row))
    except HostRefusal as err:
        return JournalStory(since, tuple(failures), told.kept(), err.message)
    return JournalStory(since, tuple(failures), told.kept(), told.why_not)


class _Told:
    """Lines on their way to the classifier, with systemd's kept."""

    def __init__(self, within_s: float) -> None:
        self._within_s = within_s
        self._units: dict[str, deque[Line]] = {}
        self.why_not = ""

    def lines(self, found: Iterable[Line]) -> Iterator[Line]:
        """Pass them on until the time is over."""
        end, clean = time.monotonic() + self._within_s, Redactor().clean
        for number, line in enumerate(found):
            if line.by == "systemd" and _TOLD.search(line.text):
                kept = self._units.setdefault(line.endpoint, deque(maxlen=_KEPT_LINES))
                kept.append(Line(line.at, line.by, clean(line.text)[:400], line.endpoint, line.engine))
            yield line
            if number % 256 == 255 and time.monotonic() > end:
                when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(line.at))
                self.why_not = f"reading was ended after {self._within_s:g} s, at what was written on {when}"
                return

    def kept(self) -> dict[str, tuple[Line, ...]]:
        """What systemd said, by endpoint."""
        return {name: tuple(lines) for name, lines in self._units.items()}
