"""The plain estimate that people know: weights and cache, times 1.15. It is shown and decides nothing."""

from __future__ import annotations

from collections.abc import Mapping

from archonctl.model.geometry import Geometry, ModelFacts

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


def plain_bytes(facts: ModelFacts, seqs: int, length: int, dtype: str, cards: int) -> int:
    """(weights + 2 x layers x KV heads x head width x bytes x tokens) x 1.15 / cards, windows and states unseen."""
    cache = 0.0 if facts.geometry is None else _row(facts.geometry) * _ELEMENT_BYTES.get(dtype, 1) * seqs * length
    weights = facts.weight_bytes or facts.file_bytes
    return round((weights + cache) * OVERHEAD / max(1, cards))


def _row(geometry: Geometry) -> int:
    return sum(layer.k_width + layer.v_width for layer in geometry.layers)
