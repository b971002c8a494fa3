"""How fast tiers and engine were seen to be: what a decision is reckoned with."""

from __future__ import annotations

from dataclasses import dataclass, field

from archonctl.tiers.measured import Measured, Speed
from archonctl.tiers.store import Store
from archonctl.tiers.table import Seen

LEAST_BYTES = 1 << 20
"""A smaller move says more of the latency than of the bandwidth."""
LEAST_TOKENS = 64
"""Fewer are over before they say anything of the speed."""


@dataclass
class Speeds:
    """Of one executor."""

    declared_prefill_s: float | None = None
    _prefill_s: float | None = None
    _bytes_per_s: dict[str, float] = field(default_factory=dict)

    def recall(self, before: Measured) -> None:
        """What was measured by the guard before this one."""
        self._prefill_s = 1 / before.prefill_tokens_per_s if before.prefill_tokens_per_s else None
        known = {name: each.bandwidth_bytes_per_s for name, each in before.tiers.items()}
        self._bytes_per_s = {name: speed for name, speed in known.items() if speed is not None}

    def first(self, place: str, store: Store) -> None:
        """Write and read a little in a place that nothing was moved to yet. Raises StagingError."""
        if place not in self._bytes_per_s:
            self._bytes_per_s[place] = store.measure(place)

    def learn(self, place: str, size: int, seconds: float) -> None:
        """One verified move; the latest ones count most."""
        if size >= LEAST_BYTES and seconds > 0:
            before = self._bytes_per_s.get(place, size / seconds)
            self._bytes_per_s[place] = (before + size / seconds) / 2

    def prefilled(self, tokens: int, seconds: float) -> None:
        """One prompt; the latest ones count most, and short ones say nothing."""
        if tokens >= LEAST_TOKENS and seconds > 0:
            before = self._prefill_s or seconds / tokens
            self._prefill_s = (before + seconds / tokens) / 2

    @property
    def prefill_s_per_token(self) -> float | None:
        """As seen, else as declared; ``None`` where neither is."""
        return self._prefill_s or self.declared_prefill_s

    def seen(self, place: str, capacity_bytes: int, other_bytes: int) -> Seen:
        """What the table of tiers is told of a place."""
        speed = self._bytes_per_s.get(place)
        return Seen(capacity_bytes, other_bytes, None, speed, None if speed is None else 0.0, "moved here")

    def measured(self) -> Measured:
        """Everything that was measured here, as it is kept beside the endpoint's verdicts."""
        prefill = 1 / self._prefill_s if self._prefill_s else None
        return Measured({name: Speed(each) for name, each in self._bytes_per_s.items()}, prefill)
