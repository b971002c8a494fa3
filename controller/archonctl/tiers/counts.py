"""What the executor publishes of itself (``metrics.toml``), as prometheus-client metrics. Labels are closed sets."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry

from archonctl.observe.instruments import Instruments


class TierCounts:
    """The metrics of one executor, in the registry that is given."""

    def __init__(self, registry: CollectorRegistry, say: Callable[[str], None] = lambda _: None) -> None:
        """``say`` is told the first failure of each kind."""
        self._say, self._said = say, set[tuple[str, str]]()
        made = Instruments("tiers", registry)
        self._moves = made.counter("archon_tiers_moves_total")
        self._bytes = made.counter("archon_tiers_moved_bytes_total")
        self._seconds = made.counter("archon_tiers_move_seconds_total")
        self._failures = made.counter("archon_tiers_failures_total")
        self._requests = made.counter("archon_tiers_requests_total")
        self._kept = made.counter("archon_tiers_kept_tokens_total")
        self._again = made.counter("archon_tiers_reprefilled_tokens_total")
        self._staged = made.gauge("archon_tiers_staged_bytes")
        self._files = made.gauge("archon_tiers_staged_conversations")
        self._usable = made.gauge("archon_tiers_usable")

    def moved(self, action: str, reason: str, size: int, seconds: float) -> None:
        """One move that was carried out."""
        self._moves.labels(action, reason).inc()
        self._bytes.labels(action).inc(size)
        self._seconds.labels(action).inc(seconds)

    def failed(self, action: str, reason: str, detail: str = "") -> None:
        """One move that was not, with the word of who could not do it."""
        self._failures.labels(action, reason).inc()
        if (action, reason) not in self._said:
            self._said.add((action, reason))
            self._say(f"tiers: {action}: {reason}" + (f": {detail}" if detail else "") + " (counted from now on)")

    def request(self, how: str) -> None:
        """One request: how it found its slot."""
        self._requests.labels(how).inc()

    def reuse(self, kept: int, again: int) -> None:
        """Tokens of a known conversation that were in its slot, and those that had to be prefilled again."""
        self._kept.inc(kept)
        self._again.inc(again)

    def stands(self, place: str, size: int, files_: int) -> None:
        """What is staged in a place."""
        self._staged.labels(place).set(size)
        self._files.labels(place).set(files_)

    def usable(self, yes: bool) -> None:
        """Whether conversations are moved for this engine at all."""
        self._usable.set(yes)
