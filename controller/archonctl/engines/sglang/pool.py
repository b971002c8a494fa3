"""SGLang's pool of one rank: tokens, bytes, and what these were worked out from."""

from __future__ import annotations

from dataclasses import dataclass

from archonctl.memory.interval import GIB, Interval

CONTEXT_GIB = (0.3, 0.6, 1.5)
"""Driver context and communication buffers of a rank before the weights: low, best, high. Assumed."""


@dataclass(frozen=True, slots=True)
class Share:
    """What a blind pool is worked out from: bytes that are free of a card before SGLang starts, and bytes of a rank's
    weights with its LoRA slots."""

    card: int
    weights: Interval

    @property
    def context(self) -> Interval:
        """Bytes that the driver takes before the weights are loaded."""
        low, best, high = (each * GIB for each in CONTEXT_GIB)
        return Interval(low, best, high, "assumed")


@dataclass(frozen=True, slots=True)
class Pool:
    """Tokens, and how they were found; None and why not."""

    tokens: Interval | None
    method: str
    bytes: Interval | None = None
    share: Share | None = None
