"""prometheus-client metrics made from a room's own ``metrics.toml``: name, labels and help are written there alone."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram


@dataclass(frozen=True)
class Row:
    """One row of a table. ``absent`` says what it means that there is no sample."""

    name: str
    kind: Literal["gauge", "counter", "histogram"]
    labels: tuple[str, ...]
    help: str
    absent: str = ""


@functools.cache
def rows(room: str) -> Mapping[str, Row]:
    """Every metric of a room by its name."""
    text = files(f"archonctl.{room}").joinpath("metrics.toml").read_text(encoding="utf-8")
    found = tomllib.loads(text)["metric"]
    return {r["name"]: Row(r["name"], r["kind"], tuple(r["labels"]), r["help"], r.get("absent", "")) for r in found}


@dataclass(frozen=True)
class Instruments:
    """Makes a room's metrics in a registry. A name that is not in its table raises KeyError, a defect of ours."""

    room: str
    registry: CollectorRegistry

    def gauge(self, name: str) -> Gauge:
        """A gauge of the table."""
        row = rows(self.room)[name]
        return Gauge(name, row.help, row.labels, registry=self.registry)

    def counter(self, name: str) -> Counter:
        """A counter of the table."""
        row = rows(self.room)[name]
        return Counter(name, row.help, row.labels, registry=self.registry)

    def histogram(self, name: str, buckets: Sequence[float]) -> Histogram:
        """A histogram of the table."""
        row = rows(self.room)[name]
        return Histogram(name, row.help, row.labels, registry=self.registry, buckets=buckets)
