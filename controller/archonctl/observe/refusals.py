"""Who was turned away for lack of room: an engine's lines and counters in, classes and reasons out. Rows are data."""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Literal

from archonctl.memory.demand import MemoryClass
from archonctl.observe.failures import Line, is_quoted
from archonctl.probe.metrics import each_sample

Reason = Literal["never_fits", "no_room", "queue_full"]
METRIC = "archon_admission_refusals_total"


@dataclass(frozen=True, slots=True)
class Kind:
    """What was short, and why that turned a request away."""

    cls: MemoryClass
    reason: Reason


@dataclass(frozen=True, slots=True)
class LineRow:
    """A line that an engine writes for each request that it turns away."""

    id: str
    engines: frozenset[str]
    kind: Kind
    literal: str
    pattern: re.Pattern[str]
    example: str
    source: str


@dataclass(frozen=True, slots=True)
class SampleRow:
    """A counter of an engine's own; the first name that is there counts, all its samples added up."""

    engine: str
    kind: Kind
    names: tuple[str, ...]
    source: str


@functools.cache
def line_rows() -> tuple[LineRow, ...]:
    """Every line, in the order of the table."""
    return tuple(
        LineRow(
            row["id"],
            frozenset(row["engines"]),
            Kind(row["class"], row["reason"]),
            row["literal"],
            re.compile(row["pattern"]),
            row["example"],
            row["source"],
        )
        for row in _table()["line"]
    )


@functools.cache
def sample_rows() -> tuple[SampleRow, ...]:
    """Every counter, in the order of the table."""
    return tuple(
        SampleRow(row["engine"], Kind(row["class"], row["reason"]), tuple(row["names"]), row["source"])
        for row in _table()["sample"]
    )


@functools.cache
def logged_kinds(engine: str) -> frozenset[Kind]:
    """Which refusals an engine writes into its log."""
    return frozenset(row.kind for row in line_rows() if engine in row.engines)


def refused(line: Line) -> Kind | None:
    """What a line says was turned away; None for any other line. A line is a request."""
    if line.by != "engine":
        return None
    for row in line_rows():
        if row.literal in line.text and line.engine in row.engines:
            found = row.pattern.search(line.text)
            if found is not None and not is_quoted(line.text, found.start()):
                return row.kind
    return None


def counted(engine: str, text: str) -> Mapping[Kind, float]:
    """An engine's own counters, from its metrics; what it does not state is not there."""
    found: dict[Kind, float] = {}
    for row in sample_rows():
        said = [values for name in row.names if (values := each_sample(text, frozenset({name})))]
        if row.engine == engine and said:
            found[row.kind] = found.get(row.kind, 0.0) + sum(said[0])
    return found


@functools.cache
def guard_kinds() -> Mapping[str, Kind]:
    """What was short and why, by the code of a guard's refusal; only of those for lack of room."""
    return {row["code"]: Kind(row["class"], row["reason"]) for row in _table()["guard"]}


@functools.cache
def _table() -> dict[str, list[dict[str, Any]]]:
    return tomllib.loads(files("archonctl.observe").joinpath("refusals.toml").read_text(encoding="utf-8"))
