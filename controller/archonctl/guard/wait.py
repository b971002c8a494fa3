"""How long until a request has room, from how long requests were seen to take. Pure; in seconds."""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from archonctl.guard.need import Need

LEAST_S, MOST_S = 1, 3600
_KEPT = 256


@dataclass(frozen=True)
class Flight:
    """One request on the engine: what it holds and for how long it has."""

    need: Need
    age_s: float


@dataclass
class ServiceTimes:
    """How long the last requests held what they held, in seconds for each token that was reserved."""

    _seen: deque[float] = field(default_factory=lambda: deque(maxlen=_KEPT))

    def saw(self, seconds: float, need: Need) -> None:
        """One request has ended."""
        self._seen.append(seconds / max(1, need.tokens))

    def remaining_s(self, flights: Iterable[Flight]) -> list[tuple[float, Need]]:
        """What is left of each request by the median of those before, the shortest first. One that is past it, and any
        where none was seen yet, is expected to take as long again as it has (of something of unknown length that is
        the median guess: Gott, Nature 363, 1993)."""
        median = statistics.median(self._seen) if self._seen else 0.0
        usual = [(median * max(1, each.need.tokens), each) for each in flights]
        left = [(u - each.age_s if u > each.age_s else each.age_s, each.need) for u, each in usual]
        return sorted(left, key=lambda each: each[0])

    def retry_after_s(self, short: Need, flights: Iterable[Flight]) -> int:
        """Whole seconds until so much was given back; between 1 s and an hour. ``short``: what is missing, those who
        wait before it included."""
        tokens = slots = 0
        left_s = float(LEAST_S)
        for end_s, need in self.remaining_s(flights):
            left_s, tokens, slots = end_s, tokens + need.tokens, slots + need.slots
            if tokens >= short.tokens and slots >= short.slots:
                break
        else:  # all that runs is not enough: those who wait must run as well
            if slots:
                left_s *= max(1.0, short.tokens / max(1, tokens), short.slots / slots)
        return min(MOST_S, max(LEAST_S, math.ceil(left_s)))
