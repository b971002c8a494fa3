"""Which memory ran out, and who says so: lines of a journal in, classified events out. Pure; the lines are data.

An exit status of 137 alone is no evidence of it: only the words of the kernel, a driver, systemd or the engine are.
"""

from __future__ import annotations

import functools
import math
import re
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from importlib.resources import files
from typing import Literal

from archonctl.memory.demand import MemoryClass
from archonctl.observe.amounts import Amount, amount_in

By = Literal["engine", "kernel", "driver", "systemd"]

ONE_EVENT_S = 10.0
"""Lines of one endpoint, class and teller that are no further apart than this are of one event."""
_CONTEXT_LINES = 200
_SITE_CHARS = 300
_OPENED = re.compile(r"(?<![A-Za-z])['\"]")
"""A quote that opens: what stands behind it in an engine's line is a request that it repeats (or a text about one)."""
_UNIT = re.compile(r"archon@(?P<name>[^/]+)\.service")


@dataclass(frozen=True, slots=True)
class Pattern:
    """One row of ``failures.toml``."""

    id: str
    by: By
    engines: frozenset[str]
    cls: MemoryClass
    literal: str
    pattern: re.Pattern[str]
    context: bool
    example: str
    source: str
    pool: bool = False
    """A pool of the engine was there, and too small; else its memory was not to be had."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a journal. ``at`` is Unix time; ``endpoint`` is empty for lines of the kernel."""

    at: float
    by: Literal["engine", "kernel", "systemd"]
    text: str
    endpoint: str = ""
    engine: str = ""
    invocation: str = ""
    """Of the unit, as systemd numbers its starts; empty where the line does not say."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One event. ``site`` is the first line of it; ``endpoint`` is empty where nobody says whose it was.

    ``short_bytes`` and ``card`` are what its lines say was missing, and where; None where they do not. ``pool``: of a
    pool of the engine, which was there and too small.
    """

    at: float
    endpoint: str
    cls: MemoryClass
    by: By
    site: str
    row: str
    short_bytes: int | None = None
    card: int | None = None
    pool: bool = False
    at_most: bool = False
    """``short_bytes`` is the size of what had no room: less may have been missing."""
    invocation: str = ""
    """Which start of the unit it was of; empty where its line does not say."""


@functools.cache
def patterns() -> tuple[Pattern, ...]:
    """Every row, in the order of the table."""
    rows = tomllib.loads(files("archonctl.observe").joinpath("failures.toml").read_text(encoding="utf-8"))["line"]
    return tuple(
        Pattern(
            row["id"],
            row["by"],
            frozenset(row["engines"]),
            row["class"],
            row["literal"],
            re.compile(row["pattern"]),
            row.get("context", False),
            row["example"],
            row["source"],
            row.get("pool", False),
        )
        for row in rows
    )


@functools.cache
def tellers(engine: str | None) -> frozenset[tuple[MemoryClass, By]]:
    """Which classes may be said to have run out, and by whom: of an endpoint with that engine, or (None) a host."""
    said = [row for row in patterns() if row.by != "engine" or {"*", engine} & row.engines]
    of_host: tuple[By, ...] = ("kernel", "driver")
    of_endpoint: tuple[By, ...] = ("engine", "kernel", "systemd")
    return frozenset((row.cls, row.by) for row in said if row.by in (of_host if engine is None else of_endpoint))


@dataclass(slots=True)
class Classifier:
    """Takes lines in the order of their time; bounded by the endpoints there are."""

    _context: dict[str, tuple[MemoryClass, int]] = field(default_factory=dict)
    _last: dict[tuple[str, MemoryClass, By], float] = field(default_factory=dict)
    _pending: dict[tuple[str, By], Failure] = field(default_factory=dict)
    """Failures whose class is not known yet: the line that tells it often comes after the first one."""

    def take(self, line: Line) -> list[Failure]:
        """The events that are sure by this line."""
        due = self.flush(line.at)
        for row in patterns():
            if row.literal not in line.text or not _may_say(row, line):
                continue
            found = row.pattern.search(line.text)
            if found is None or (line.by == "engine" and is_quoted(line.text, found.start())):
                continue
            if row.context:
                self._context[line.endpoint] = (row.cls, _CONTEXT_LINES)
                return due
            group = found.groupdict().get("group")
            return due + self._event(line, row, _endpoint(group) if group else line.endpoint)
        self._age(line.endpoint)
        return due

    def flush(self, now: float) -> list[Failure]:
        """Events of unknown class for which nothing has told it in time."""
        due = [each for each in self._pending.values() if abs(now - each.at) > ONE_EVENT_S]
        for each in due:
            del self._pending[each.endpoint, each.by]
        return due

    def _event(self, line: Line, row: Pattern, endpoint: str) -> list[Failure]:
        cls = row.cls
        if cls == "unknown" and row.by == "engine":
            cls = self._context.get(endpoint, (cls, 0))[0]
        key = (endpoint, cls, row.by)
        before, self._last[key] = self._last.get(key), line.at
        amount, first = amount_in(line.text), self._pending.get((endpoint, row.by))
        if first is not None and first.short_bytes is None:  # a later line of the same event may have the figure
            self._pending[endpoint, row.by] = _with(first, amount)
        if before is not None and abs(line.at - before) <= ONE_EVENT_S:
            return []
        site = line.text.strip()[:_SITE_CHARS]
        failure = _with(
            Failure(line.at, endpoint, cls, row.by, site, row.id, pool=row.pool, invocation=line.invocation), amount
        )
        if cls != "unknown":
            first = self._pending.pop((endpoint, row.by), None)
            if amount is None and first is not None:  # a line before this one had the figure
                failure = replace(failure, short_bytes=first.short_bytes, card=first.card, at_most=first.at_most)
            return [failure]
        if not self._told_lately(endpoint, row.by, line.at):
            self._pending[endpoint, row.by] = failure
        return []

    def _told_lately(self, endpoint: str, by: By, at: float) -> bool:
        """True if this is one more line of an event whose class is known."""
        same = (
            when for (name, cls, who), when in self._last.items() if (name, who) == (endpoint, by) and cls != "unknown"
        )
        return any(abs(at - when) <= ONE_EVENT_S for when in same)

    def _age(self, endpoint: str) -> None:
        if endpoint in self._context:
            cls, left = self._context[endpoint]
            if left > 1:
                self._context[endpoint] = (cls, left - 1)
            else:
                del self._context[endpoint]


def is_quoted(text: str, at: int) -> bool:
    """True if what stands at ``at`` in an engine's line stands behind a quote that opens."""
    return _OPENED.search(text, 0, at) is not None


def _with(failure: Failure, amount: Amount | None) -> Failure:
    if amount is None:
        return failure
    return replace(failure, short_bytes=amount.bytes, card=amount.card, at_most=amount.at_most)


def classify(lines: Iterable[Line]) -> Iterator[Failure]:
    """Every event of some lines, which end here."""
    classifier = Classifier()
    for line in lines:
        yield from classifier.take(line)
    yield from classifier.flush(math.inf)


def _may_say(row: Pattern, line: Line) -> bool:
    """An engine cannot speak for the kernel, nor the kernel for an engine: what a request makes an engine print counts
    for that engine alone."""
    if row.by == "engine":
        return line.by == "engine" and ("*" in row.engines or line.engine in row.engines)
    return line.by == ("kernel" if row.by == "driver" else row.by)


def _endpoint(group: str) -> str:
    found = _UNIT.search(group)
    return found["name"] if found else ""
