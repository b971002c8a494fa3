"""What the guard publishes of itself, as prometheus-client metrics: ``metrics.toml`` is the list of them.

Every label is from a closed set: no client, no path, no model.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from prometheus_client import CollectorRegistry, disable_created_metrics

from archonctl.guard.need import budget_tokens, slots_of
from archonctl.guard.values import Capacity, Refusal
from archonctl.observe.instruments import Instruments

Outcome = Literal["attempted", "succeeded", "failed"]
How = Literal["bound", "exact", "cached", "failed"]
OUTCOMES: tuple[Outcome, ...] = ("attempted", "succeeded", "failed")
HOWS: tuple[How, ...] = ("bound", "exact", "cached", "failed")
REASONS = ("capacity", "media", "template", "prompt", "not-countable", "count-failed", "count-late")
"""Why a request can pass without being checked."""
_BUCKETS = (0.001, 0.01, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800)
_UNKNOWN = float("nan")


class GuardMetrics:
    """The metrics of one guard, in a registry of their own."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # a time beside each counter, which no table has
        self.registry = CollectorRegistry()
        made = Instruments("guard", self.registry)
        self._capacity = made.gauge("archon_guard_capacity_tokens")
        self._slots = made.gauge("archon_guard_capacity_slots")
        self._known = made.gauge("archon_guard_capacity_known")
        self._want = made.gauge("archon_guard_plan_want_tokens")
        self._budget = made.gauge("archon_guard_plan_budget_tokens")
        self._margin = made.gauge("archon_guard_plan_margin_tokens")
        self._held = made.gauge("archon_guard_held_tokens")
        self._high_water = made.gauge("archon_guard_held_high_water_tokens")
        self._in_flight = made.gauge("archon_guard_in_flight_requests")
        self._waiting = made.gauge("archon_guard_waiting_requests")
        self._admitted = made.counter("archon_guard_admitted_total")
        self._passed = made.counter("archon_guard_passed_unknown_total")
        self._refused = made.counter("archon_guard_refusals_total")
        self._left = made.counter("archon_guard_left_waiting_total")
        self._queue = made.histogram("archon_guard_queue_seconds", _BUCKETS)
        self._counts = made.counter("archon_guard_counts_total")
        self._retries = made.counter("archon_guard_retries_total")
        for reason in REASONS:
            self._passed.labels(reason)
        for how in HOWS:
            self._counts.labels(how)
        for outcome in OUTCOMES:
            self._retries.labels(outcome)
        self.limits(Capacity())

    def limits(self, capacity: Capacity) -> None:
        """What requests are held against from now on."""
        self._capacity.clear()
        for limit, tokens in (("window", capacity.window_tokens), ("pool", budget_tokens(capacity))):
            if tokens is not None:
                self._capacity.labels(limit).set(tokens)
        slots = slots_of(capacity)
        self._slots.set(_UNKNOWN if slots is None else slots)
        self._known.set(capacity.is_known)

    def planned(self, want_tokens: int, budget_tokens: int | None) -> None:
        """The latest request of known size, and what was free for it."""
        budget = _UNKNOWN if budget_tokens is None else budget_tokens
        self._want.set(want_tokens)
        self._budget.set(budget)
        self._margin.set(budget - want_tokens)

    def follow(
        self,
        tokens: Callable[[], int],
        high_water_tokens: Callable[[], int],
        in_flight: Callable[[], int],
        waiting: Callable[[], int],
    ) -> None:
        """Where to read, for each scrape, what is reserved and by how many: requests change it more often."""
        for gauge, read in (
            (self._held, tokens),
            (self._high_water, high_water_tokens),
            (self._in_flight, in_flight),
            (self._waiting, waiting),
        ):
            gauge.set_function(read)

    def admitted(self, waited_s: float) -> None:
        """A request of known size goes to the engine."""
        self._admitted.inc()
        self._queue.observe(waited_s)

    def passed_unknown(self, reason: str) -> None:
        """A request goes to the engine unchecked. A reason that is not in ``REASONS`` counts as ``prompt``."""
        self._passed.labels(reason if reason in REASONS else "prompt").inc()

    def refused(self, refusal: Refusal) -> None:
        """The guard itself answered a request: admission, limits, keys, or since the engine is lost."""
        self._refused.labels(refusal.code, refusal.kv_class or "none").inc()

    def left_waiting(self) -> None:
        """A client went away while its request waited."""
        self._left.inc()

    def counted(self, how: How) -> None:
        """How a prompt was sized."""
        self._counts.labels(how).inc()

    def retry(self, outcome: Outcome) -> None:
        """One retry after an engine's memory failure: ``attempted``, then ``succeeded`` or ``failed``."""
        self._retries.labels(outcome).inc()
