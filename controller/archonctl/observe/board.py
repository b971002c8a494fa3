"""What was seen last, and when: filled by the looks in their own time, read by every scrape."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from archonctl.observe.catalogue import Look
from archonctl.observe.values import Sample, sample


@dataclass(slots=True)
class _Seen:
    samples: tuple[Sample, ...] = ()
    at: float | None = None
    is_up: bool = False


@dataclass(slots=True)
class Board:
    """One entry for each endpoint ("" is the host) and look. ``stale_s``: samples older than that are withdrawn, since
    a gauge that stands still looks like one that is watched."""

    stale_s: float = 600.0
    clock: Callable[[], float] = time.monotonic
    _seen: dict[tuple[str, Look], _Seen] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def put(self, endpoint: str, look: Look, samples: Iterable[Sample]) -> None:
        """A look succeeded."""
        with self._lock:
            self._seen[endpoint, look] = _Seen(tuple(samples), self.clock(), is_up=True)

    def fail(self, endpoint: str, look: Look) -> None:
        """A look failed: what was seen before stays, with its age."""
        with self._lock:
            self._seen.setdefault((endpoint, look), _Seen()).is_up = False

    def forget(self, endpoint: str, look: Look) -> None:
        """There is nothing to look at any more."""
        with self._lock:
            self._seen.pop((endpoint, look), None)

    def keep_only(self, endpoints: Iterable[str]) -> None:
        """Forget endpoints that are no longer there."""
        wanted = {"", *endpoints}
        with self._lock:
            for key in [key for key in self._seen if key[0] not in wanted]:
                del self._seen[key]

    def samples(self) -> list[Sample]:
        """Everything that is not stale, and the state of every look."""
        now, found = self.clock(), []
        with self._lock:
            entries = sorted(self._seen.items())
        for (endpoint, look), seen in entries:
            found.append(sample("archon_look_up", endpoint, look, value=seen.is_up))
            if seen.at is None:
                continue
            found.append(sample("archon_look_age_seconds", endpoint, look, value=max(0.0, now - seen.at)))
            if now - seen.at <= self.stale_s:
                found += seen.samples
        return found
