"""The plain estimate that people know: weights and cache, times 1.15. It is shown and decides nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from archonctl.model.geometry import ModelFacts

OVERHEAD = 1.15
"""What such planners add for everything else (github.com/soapbucket/sbproxy, fit.rs)."""
_ELEMENT_BYTES: Mapping[str, float] = {
    "f16": 2,
    "bf16": 2,
    "f32": 4,
    "q8_0": 1,
    "q4_0": 0.5,
    "q4_1": 0.5,
    "iq4_nl": 0.5,
}
"""As people count them; what is really served is what the law counts."""


@dataclass(frozen=True, slots=True)
class Plain:
    """Bytes of all weights, and elements of cache a token: 2 x layers x KV heads x head width. Windows are not seen."""

    weights_bytes: int
    elements: int

    @classmethod
    def of(cls, facts: ModelFacts) -> Plain:
        """From the facts of a model; without a geometry the cache is left out."""
        layers = facts.geometry.layers if facts.geometry else ()
        return cls(facts.weight_bytes or facts.file_bytes, sum(layer.k_width + layer.v_width for layer in layers))

    def bytes(self, tokens: int, dtype: str, cards: int) -> int:
        """(weights + cache) x 1.15 / cards."""
        cache = self.elements * _ELEMENT_BYTES.get(dtype, 1) * tokens
        return round((self.weights_bytes + cache) * OVERHEAD / max(1, cards))
