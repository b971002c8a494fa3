"""What a log line gave: figures and facts as one sighting, and the book that gathers the sightings of one boot.

An engine whose log needs more than "last", "sum" or "min" brings its own ``Book`` in ``engines/<name>/ledger.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from archonctl.memory.interval import Interval

Rule = Literal["last", "first", "min", "max", "sum"]

SERIES_LIMIT = 64
"""Occurrences of one figure that are kept one by one; sums and minima go on beyond it."""
RANK_LIMIT = 4096
"""Ranks told apart; a log that names more is no log of an engine."""


@dataclass(frozen=True, slots=True)
class FigureRule:
    """How the occurrences of one figure become one figure.

    ``rule`` folds occurrences of one rank, ``ranks`` folds the ranks. ``unit`` is the unit of the value;
    "" is a count, "tokens" too.
    """

    name: str
    unit: str
    rule: Rule
    ranks: Rule
    about: str


@dataclass(frozen=True, slots=True)
class Find:
    """One figure with the line that carries it."""

    value: Interval
    line_no: int
    text: str


@dataclass(frozen=True, slots=True)
class Note:
    """A line that matters without being a figure; ``severity`` is "refusal", "warning" or "info"."""

    code: str
    severity: str
    text: str
    line_no: int


@dataclass(frozen=True, slots=True)
class Sighting:
    """Everything that one row of a grammar read from one line."""

    row: str
    figures: Mapping[str, Find]
    facts: Mapping[str, str]
    rank: str
    line_no: int
    text: str


def plus(left: Interval, right: Interval) -> Interval:
    """Sum of two rounded figures: the errors add."""
    return Interval(left.low + right.low, left.best + right.best, left.high + right.high, "log")


def _within(inner: Interval, outer: Interval) -> bool:
    return outer.low <= inner.low and inner.high <= outer.high


def _fold(rule: Rule, old: Find, new: Find) -> Find:
    if rule == "sum":
        return Find(plus(old.value, new.value), new.line_no, new.text)
    if rule == "first":
        return old
    if rule == "min":
        return new if new.value.best < old.value.best else old
    if rule == "max":
        if _within(old.value, new.value) or _within(new.value, old.value):  # one figure, rounded twice
            return old if _within(old.value, new.value) else new
        return new if new.value.best > old.value.best else old
    return new


@dataclass
class Book:
    """The sightings of one boot. Memory is bounded whatever the log says."""

    rules: Mapping[str, FigureRule]
    series: dict[str, list[Find]] = field(default_factory=dict)
    """The first ``SERIES_LIMIT`` occurrences of each figure, in order."""
    by_rank: dict[str, dict[str, Find]] = field(default_factory=dict)
    told: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Where an engine's own book sets up what it gathers."""

    def note(self, sighting: Sighting) -> None:
        """Take one sighting in."""
        for name, find in sighting.figures.items():
            self.add(name, find, sighting.rank)
        self.told.update(sighting.facts)

    def add(self, name: str, find: Find, rank: str = "") -> None:
        """Fold one occurrence of a figure into the book."""
        ranks = self.by_rank.setdefault(name, {})
        if rank in ranks:
            ranks[rank] = _fold(self.rules[name].rule, ranks[rank], find)
        elif len(ranks) < RANK_LIMIT:
            ranks[rank] = find
        series = self.series.setdefault(name, [])
        if len(series) < SERIES_LIMIT:
            series.append(find)

    def folded(self, name: str) -> Find | None:
        """One figure folded over its ranks, or None if it was not seen."""
        found: Find | None = None
        for find in self.by_rank.get(name, {}).values():
            found = find if found is None else _fold(self.rules[name].ranks, found, find)
        return found

    def figures(self) -> dict[str, Find]:
        """All figures of the boot."""
        finds = ((name, self.folded(name)) for name in self.by_rank)
        return {name: find for name, find in finds if find is not None}

    def facts(self) -> dict[str, str]:
        """What was said in words: types, devices, versions."""
        return dict(self.told)

    def notes(self) -> Iterable[Note]:
        """What follows from the figures together (a partial offload), beyond the lines that are remarks themselves."""
        return ()


BookMaker = Callable[[Mapping[str, FigureRule]], Book]
