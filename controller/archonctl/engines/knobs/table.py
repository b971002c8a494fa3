"""Knob tables: which flags an engine knows at which version, from ``engines/<name>/knobs.toml`` and ``rules.toml``.

``knobs.toml`` is merged from the engine's own lists of many versions (``scripts/build-knob-table``); ``rules.toml``
beside it is kept by hand and holds what no such list says. Loaded when something is rendered or gated.
"""

from __future__ import annotations

import tomllib
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache, cached_property, lru_cache
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal

from packaging.version import Version
from pydantic import TypeAdapter

from archonctl.engines.knob_values import spelled
from archonctl.engines.knobs.row import Amendment, Deprecated, Knob, Managed, Retired
from archonctl.engines.knobs.versions import version_key
from archonctl.errors import UsageError

_ENGINES = Path(__file__).parent.parent
Standing = Literal["read", "between", "older", "newer"]
"""How a version lies to those whose lists were read: one of them, between two, or outside."""


@dataclass(frozen=True, eq=False)
class KnobTable:
    """Every form of every flag of one engine. ``versions`` are those whose real lists were read, oldest first."""

    engine: str
    versions: tuple[str, ...]
    knobs: tuple[Knob, ...]
    retired: tuple[Retired, ...] = ()
    managed: tuple[Managed, ...] = ()
    deprecated: tuple[Deprecated, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict)
    """What was read, by version."""

    @property
    def newest(self) -> str:
        """The newest version that was read."""
        return self.versions[-1]

    def key(self, version: str) -> Version:
        """A version as something that can be compared; raises UsageError ``engine-version-invalid``."""
        return version_key(self.engine, version)

    @cached_property
    def read(self) -> tuple[Version, ...]:
        """``versions`` as they compare."""
        return tuple(map(self.key, self.versions))

    def standing(self, version: str) -> Standing:
        """How a version lies to those that were read."""
        key = self.key(version)
        if key in self.read:
            return "read"
        return "older" if key < self.read[0] else "newer" if key > self.read[-1] else "between"

    @cached_property
    def spans(self) -> tuple[Span, ...]:
        """From when to when each row holds, in the order of ``knobs``."""
        return tuple(map(self._span, self.knobs))

    def _span(self, knob: Knob) -> Span:
        read = self.read
        since = self.key(knob.since) if knob.since else read[0]
        removed = self.key(knob.removed) if knob.removed else None
        end = len(read) if removed is None else bisect_left(read, removed)
        last = self.key(knob.last_seen) if knob.last_seen else read[end - 1] if end else since
        begin = bisect_left(read, since) if knob.since else 0
        return Span(read[begin - 1] if begin else None, since, max(last, since), removed)

    @cached_property
    def by_option(self) -> Mapping[str, tuple[Knob, ...]]:
        """Every row by each of its spellings, as they are, oldest first."""
        found: dict[str, list[Knob]] = {}
        for knob in self.knobs:
            for name in (*knob.names, *knob.negatives):
                found.setdefault(name, []).append(knob)
        return {name: tuple(rows) for name, rows in found.items()}

    @cached_property
    def by_variable(self) -> Mapping[str, tuple[Knob, ...]]:
        """Every row by its variable, oldest first."""
        found: dict[str, list[Knob]] = {}
        for knob in self.knobs:
            if knob.env_key:
                found.setdefault(knob.env_key, []).append(knob)
        return {name: tuple(rows) for name, rows in found.items()}

    @cached_property
    def _by_spelling(self) -> Mapping[str, tuple[Knob, ...]]:
        """Every row by each of its names without dashes, oldest first."""
        found: dict[str, list[Knob]] = {}
        for knob in self.knobs:
            for name in dict.fromkeys(map(spelled, (*knob.names, *knob.negatives))):
                found.setdefault(name, []).append(knob)
        return {name: tuple(rows) for name, rows in found.items()}

    def forms(self, name: str) -> tuple[Knob, ...]:
        """Every row, of any version, that a flag (any spelling) or a variable names."""
        return self._by_spelling.get(spelled(name), ()) or (self.by_variable.get(name, ()) if name else ())

    def nearest(self, name: str) -> tuple[float, str]:
        """The flag of any version that a misspelt one probably means, and how close it is; 0 and nothing if none is."""
        import difflib  # only where a mistake is explained

        wanted = spelled(name)
        close = difflib.get_close_matches(wanted, self._by_spelling, n=1, cutoff=0.6)
        return (difflib.SequenceMatcher(None, close[0], wanted).ratio(), close[0]) if close else (0.0, "")

    def gone_by_rule(self, rule: Retired, forms: Sequence[Knob], key: Version) -> bool:
        """True if a hand-kept row says that a version lacks it; one without a version speaks where no form does."""
        return self.key(rule.removed) <= key if rule.removed else not forms

    def retirement(self, name: str) -> Retired | None:
        """The hand-kept row about a flag or variable that went away."""
        rows = (self._retired_by_name.get(key) for key in (f"env:{name}", f"flag:{spelled(name)}"))
        first = min((row for row in rows if row), key=itemgetter(0), default=None)
        return first[1] if first else None

    @cached_property
    def _retired_by_name(self) -> Mapping[str, tuple[int, Retired]]:
        """The first hand-kept row by each of its variables and flags, with its place among them."""
        found: dict[str, tuple[int, Retired]] = {}
        for number, row in enumerate(self.retired):
            names = (*(f"env:{key}" for key in row.env_keys), *(f"flag:{spelled(name)}" for name in row.names))
            for name in names:
                found.setdefault(name, (number, row))
        return found


@dataclass(frozen=True, slots=True)
class Span:
    """When a form holds: seen from ``since`` to ``last``, surely gone at ``removed``, not yet there at ``before``.

    ``before`` is None where it is older than all that was read, ``removed`` where it is still there.
    """

    before: Version | None
    since: Version
    last: Version
    removed: Version | None

    def holds(self, key: Version) -> bool | None:
        """True or False where that is known, None between two lists that differ."""
        if self.removed is not None and key >= self.removed:
            return False
        if self.since <= key <= self.last:
            return True
        if key < self.since:
            return None if self.before is not None and key > self.before else False
        return None if self.removed is not None else True


@dataclass(frozen=True, slots=True)
class Found:
    """A row that a name means at a version; ``positive`` is False for the negative form.

    ``certain`` is False where only one of the two neighbouring lists has it.
    """

    knob: Knob
    positive: bool = True
    certain: bool = True


class Edition:
    """What one version takes. Outside of what was read it is the nearest list."""

    def __init__(self, table: KnobTable, version: str) -> None:
        self.table = table
        self.version = version
        self.standing = table.standing(version)
        key = min(max(table.key(version), table.read[0]), table.read[-1])
        holding = [(knob, span.holds(key)) for knob, span in zip(table.knobs, table.spans, strict=True)]
        # What is certain is entered last, and so wins over a form that only one neighbour has.
        found = [Found(knob, certain=True) for knob, holds in holding if holds]
        maybe = [Found(knob, certain=False) for knob, holds in holding if holds is None]
        self.knobs: tuple[Knob, ...] = tuple(entry.knob for entry in found if not entry.knob.refused)
        self.options: dict[str, Found] = {}
        self.variables: dict[str, Found] = {}
        for entry in (*maybe, *found):
            self._enter(entry)
        self.spellings: dict[str, Found] = {spelled(name): entry for name, entry in self.options.items()}

    def _enter(self, entry: Found) -> None:
        knob = entry.knob
        for name in knob.names:
            self.options[name] = entry
        for name in knob.negatives:
            self.options[name] = replace(entry, positive=False)
        if knob.env_key:
            self.variables[knob.env_key] = entry
            if knob.negatives and "_ARG_" in knob.env_key:
                self.variables[knob.env_key.replace("_ARG_", "_ARG_NO_")] = replace(entry, positive=False)

    @cached_property
    def order(self) -> Mapping[str, int]:
        """The place of each flag in the table: the order in which they are rendered."""
        return {knob.flag: number for number, knob in enumerate(self.knobs)}

    def find(self, key: str) -> tuple[Knob, bool] | None:
        """The knob of a declared key (any spelling, dashes or underscores) and False if the key is its negative."""
        found = self.spellings.get(spelled(key))
        return (found.knob, found.positive) if found and not found.knob.refused else None

    def find_env(self, variable: str) -> Knob | None:
        """The knob that an environment variable sets (also in the ``LLAMA_ARG_NO_`` form that negatives have)."""
        found = self.variables.get(variable)
        return found.knob if found else None

    def find_managed(self, knob: Knob) -> Managed | None:
        """Why a knob may not be set as one, if so."""
        return next((row for row in self.table.managed if knob.flag in row.flags), None)

    def find_deprecated(self, knob: Knob) -> Deprecated | None:
        """What a knob that is on its way out still does, if so."""
        key = self.table.key(self.version)
        rows = (row for row in self.table.deprecated if row.flag == knob.flag)
        return next((row for row in rows if not row.since or self.table.key(row.since) <= key), None)

    def deprecation(self, knob: Knob) -> str:
        """What is said about a knob that this version still takes, and warns about; empty where it does not."""
        key = self.table.key(self.version)
        if knob.deprecated and (not knob.deprecated_since or self.table.key(knob.deprecated_since) <= key):
            return knob.deprecated
        row = self.find_deprecated(knob)
        return row.effect if row else ""

    def nearest(self, name: str) -> str:
        """The option of this version that a misspelt one probably means, with its dashes; empty if there is none."""
        return _nearest(name, self.options)

    def nearest_variable(self, name: str) -> str:
        """The same for variables."""
        return _nearest(name, self.variables)

    def suggest(self, key: str) -> str:
        """The closest known spelling, without dashes, or an empty string."""
        import difflib  # only where a mistake is explained

        close = difflib.get_close_matches(spelled(key), self.spellings, n=1, cutoff=0.6)
        return close[0] if close else ""


def _nearest(name: str, known: Iterable[str]) -> str:
    import difflib  # only where a mistake is explained

    close = difflib.get_close_matches(name, known, n=1, cutoff=0.75)
    return close[0] if close else ""


@lru_cache(maxsize=256)
def edition(table: KnobTable, version: str) -> Edition:
    """What one version takes; raises UsageError ``engine-version-invalid``."""
    return Edition(table, version)


@cache
def load_table(engine: str) -> KnobTable:
    """The table of one engine kind, read once.

    Raises UsageError ``engine-unknown`` where there is none.
    """
    if engine not in table_names():
        message = f"there is no knob table for engine {engine[:40]!r}"
        raise UsageError("engine-unknown", message, hint=f"one of {', '.join(table_names())}")
    return load_folder(_ENGINES / engine)


@cache
def table_names() -> tuple[str, ...]:
    """The engine kinds that have a table."""
    return tuple(sorted(path.parent.name for path in _ENGINES.glob("*/knobs.toml")))


@cache
def load_folder(folder: Path, *, amended: bool = True) -> KnobTable:
    """Read ``knobs.toml`` and, where it exists, ``rules.toml`` of one engine folder.

    ``amended`` is False for the rows as they were harvested.

    Raises pydantic.ValidationError for a row that is none: the tables are ours, so that is a fault of ours.
    """
    table = tomllib.loads((folder / "knobs.toml").read_text(encoding="utf-8"))
    path = folder / "rules.toml"
    rules = tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    rows = [_row(row, table.get("sources", {})) for row in table["knob"]]
    amendments = TypeAdapter(tuple[Amendment, ...]).validate_python(rules.get("amend", []) if amended else [])
    return KnobTable(
        engine=table["engine"],
        versions=tuple(table["versions"]),
        knobs=_amended(TypeAdapter(tuple[Knob, ...]).validate_python(rows), amendments),
        retired=TypeAdapter(tuple[Retired, ...]).validate_python(rules.get("retired", [])),
        managed=TypeAdapter(tuple[Managed, ...]).validate_python(rules.get("managed", [])),
        deprecated=TypeAdapter(tuple[Deprecated, ...]).validate_python(rules.get("deprecated", [])),
        sources=table.get("sources", {}),
    )


def _row(row: dict[str, Any], sources: Mapping[str, str]) -> dict[str, Any]:
    """A row with what is not written out: its one spelling, and the long form of its source."""
    names = row.get("names", [] if row["flag"] == row.get("env_key") else [f"--{row['flag']}"])
    return {**row, "names": names, "source": sources.get(row["source"], row["source"])}


def _amended(knobs: tuple[Knob, ...], amendments: tuple[Amendment, ...]) -> tuple[Knob, ...]:
    changes: dict[str, dict[str, Any]] = {}
    for row in amendments:
        columns = {column.name: getattr(row, column.name) for column in fields(row)}
        del columns["flag"], columns["source"]
        changes.setdefault(row.flag, {}).update({k: v for k, v in columns.items() if v not in ("", None, ())})
    return tuple(replace(knob, **changes[knob.flag]) if knob.flag in changes else knob for knob in knobs)
