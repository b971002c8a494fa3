"""An engine's own metrics under the names that all engines share. Pure: text in, values out."""

from __future__ import annotations

from archonctl.observe.catalogue import engine_samples
from archonctl.probe.metrics import samples


def normalised(engine: str, text: str) -> dict[str, float]:
    """Values by the name of our metric; what the engine does not state is not there, and never 0."""
    found: dict[str, float] = {}
    for row in engine_samples(engine):
        values = [value for name in row.names if (value := samples(text, frozenset({name}))) is not None]
        if not values or (row.add and len(values) < len(row.names)):
            continue
        found[row.metric] = sum(values) if row.add else values[0]
    return found
