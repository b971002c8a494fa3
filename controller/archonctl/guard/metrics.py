"""What the guard publishes of itself, as prometheus-client metrics. Labels are closed sets: no client, no path."""

from __future__ import annotations

from prometheus_client import CollectorRegistry


class GuardMetrics:
    """The metrics of ``metrics.toml``, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()

    def retry(self, outcome: str) -> None:
        """One retry after an engine's memory failure: ``attempted``, then ``succeeded`` or ``failed``."""
