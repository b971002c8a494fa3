"""The order of those who wait: fair among clients, and nobody waits for ever. Pure.

Clients share by start-time fair queueing (Goyal, Vin, Cheng, SIGCOMM 1996): a client's first waiting request carries a
start tag, the smallest tag goes first, and what a client was given moves its next tag on; so one that asks much waits
behind one that asks little, however many requests it has sent.

What does not fit now may be overtaken by what does, or a long request would keep a pool half empty. That is bounded:
a client's first request that ``overtakes`` later arrivals have passed is due. Due ones go first, the earliest of them
before the others, and nobody is let past one: the pool runs empty until it fits. Since every request that runs ends,
a client's first request is admitted after those that came before it, ``overtakes`` later ones, and at most one due
request of each other client at a time; then its next one is the first. This holds whatever the tags are, so no number
of invented clients can starve anybody.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")
OVERTAKES = 16


@dataclass(eq=False)
class Entry(Generic[T]):
    """One that waits. ``cost`` is what its client pays when it is taken, in tokens."""

    client: str
    cost: int
    item: T
    arrival: int
    overtaken: int = 0


@dataclass
class _Line(Generic[T]):
    """The requests of one client in their order. ``start`` is the tag of the first."""

    start: float
    entries: deque[Entry[T]] = field(default_factory=deque)


class FairQueue(Generic[T]):
    """Entries by client; ``take`` gives the next that fits."""

    def __init__(self, overtakes: int = OVERTAKES) -> None:
        self._overtakes = overtakes
        self._lines: dict[str, _Line[T]] = {}
        self._paid: dict[str, float] = {}
        self._time = 0.0
        self._arrivals = 0
        self._waiting = 0

    def __len__(self) -> int:
        return self._waiting

    def __iter__(self) -> Iterator[Entry[T]]:
        return (entry for line in self._lines.values() for entry in line.entries)

    def waiting_of(self, client: str) -> int:
        """How many requests of a client wait."""
        line = self._lines.get(client)
        return len(line.entries) if line else 0

    def put(self, client: str, cost: int, item: T) -> Entry[T]:
        """Queue a request."""
        self._arrivals += 1
        entry = Entry(client, cost, item, self._arrivals)
        line = self._lines.get(client)
        if line is None:
            line = self._lines[client] = _Line(max(self._time, self._paid.get(client, 0.0)))
        line.entries.append(entry)
        self._waiting += 1
        return entry

    def remove(self, entry: Entry[T]) -> bool:
        """Take one out that leaves; False if it is not waiting any more. It paid nothing."""
        line = self._lines.get(entry.client)
        if line is None or entry not in line.entries:
            return False
        line.entries.remove(entry)
        self._waiting -= 1
        if not line.entries:
            del self._lines[entry.client]
        return True

    def take(self, fits: Callable[[T], bool]) -> Entry[T] | None:
        """Remove and give the next that may go, or None. ``fits`` is asked in the order of the queue."""
        for entry in self._candidates():
            if fits(entry.item):
                self._admit(entry)
                return entry
            if self._is_due(entry):
                return None
        return None

    def ahead_of(self, entry: Entry[T]) -> Iterator[Entry[T]]:
        """Those that stand before it now, were everything to fit one by one."""
        for each in self._candidates():
            if each is entry:
                return
            yield each

    def _is_due(self, entry: Entry[T]) -> bool:
        return entry.overtaken >= self._overtakes and self._lines[entry.client].entries[0] is entry

    def _candidates(self) -> Iterator[Entry[T]]:
        """Due ones by arrival, then the lines by their tag and within a line by arrival."""
        firsts = [line.entries[0] for line in self._lines.values()]
        due = sorted((each for each in firsts if self._is_due(each)), key=lambda each: each.arrival)
        yield from due
        passed = set(map(id, due))
        for line in sorted(self._lines.values(), key=lambda each: (each.start, each.entries[0].arrival)):
            yield from (each for each in line.entries if id(each) not in passed)

    def _admit(self, entry: Entry[T]) -> None:
        line, active = self._lines[entry.client], len(self._lines)
        self.remove(entry)
        for other in self._lines.values():
            first = other.entries[0]
            first.overtaken += first.arrival < entry.arrival
        line.start = max(self._time, line.start) + entry.cost
        self._paid[entry.client] = line.start
        self._time += entry.cost / active
        for client in [c for c, paid in self._paid.items() if paid <= self._time]:
            del self._paid[client]  # its next tag is the time itself: nothing to remember
