"""An engine's own metrics under the names that all engines share. Pure: text in, values out."""

from __future__ import annotations

from archonctl.observe.catalogue import engine_samples
from archonctl.probe.metrics import each_sample


def normalised(engine: str, text: str) -> dict[str, float]:
    """Values by the name of our metric; what the engine does not state is not there, and never 0."""
    found: dict[str, float] = {}
    for row in engine_samples(engine):
        values = [said for name in row.names if (said := each_sample(text, frozenset({name})))]
        if not values or (row.add and len(values) < len(row.names)):
            continue
        if not row.metric.endswith("_ratio"):
            found[row.metric] = sum(map(sum, values)) if row.add else sum(values[0])
        elif (share := sum(values[0]) / len(values[0])) <= 1:
            found[row.metric] = share  # of replicas, which have caches of one size; more than all of it is nonsense
    return found
