"""The metrics that are shown, as data: ``metrics.toml``. The exporter, the rules and the dashboard all go by it."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Literal

Kind = Literal["gauge", "counter", "info"]
Look = Literal["state", "plan", "unit", "host", "engine", "guard", "journal"]


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. ``absent`` says what it means that there is no sample; empty where there always is one."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    look: Look
    help: str
    absent: str = ""


@dataclass(frozen=True, slots=True)
class EngineSample:
    """Which samples of an engine fill a metric: the first name that is there, or all added up."""

    metric: str
    engine: str
    names: tuple[str, ...]
    add: bool
    source: str


@functools.cache
def metrics() -> Mapping[str, Metric]:
    """Every metric by its name, in the order of the table."""
    rows = _table("metrics.toml")["metric"]
    found = (
        Metric(row["name"], row["kind"], tuple(row["labels"]), row["from"], row["help"], row.get("absent", ""))
        for row in rows
    )
    return {each.name: each for each in found}


@functools.cache
def engine_samples(engine: str) -> tuple[EngineSample, ...]:
    """What one engine states; empty for an engine that is not known."""
    rows = _table("samples.toml")["sample"]
    return tuple(
        EngineSample(row["metric"], engine, tuple(row["names"]), row.get("add", False), row["source"])
        for row in rows
        if row["engine"] == engine
    )


@functools.cache
def _table(name: str) -> dict[str, list[dict[str, Any]]]:
    return tomllib.loads(files("archonctl.observe").joinpath(name).read_text(encoding="utf-8"))
