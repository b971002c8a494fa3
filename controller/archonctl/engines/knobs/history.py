"""The life of a flag, and what changed between two versions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from archonctl.engines.knobs.row import Knob, Retired
from archonctl.engines.knobs.table import KnobTable, edition

_FORM = ("names", "negatives", "type", "takes", "choices", "words", "min", "max", "above", "below", "env_key")


@dataclass(frozen=True, slots=True)
class Changed:
    """One thing that is not the same: ``what`` is a column, the texts are empty where there is nothing."""

    what: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Moved:
    """A flag that went away; ``to`` is the one that took over (empty: none), ``note`` what a stale one does."""

    knob: Knob
    to: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Altered:
    """A flag of both versions whose form or default is not the same."""

    flag: str
    changes: tuple[Changed, ...]


@dataclass(frozen=True, slots=True)
class Difference:
    """What a command line has to be looked at for, from one version to another."""

    added: tuple[Knob, ...]
    removed: tuple[Moved, ...]
    renamed: tuple[Moved, ...]
    altered: tuple[Altered, ...]

    @property
    def empty(self) -> bool:
        """True where nothing changed."""
        return not (self.added or self.removed or self.renamed or self.altered)


@dataclass(frozen=True, slots=True)
class Life:
    """Everything that one engine's table knows about a flag or a variable; ``forms`` oldest first."""

    engine: str
    flag: str
    forms: tuple[Knob, ...]
    retired: Retired | None

    @property
    def known(self) -> bool:
        """False where the table has never heard of it."""
        return bool(self.forms) or self.retired is not None


def default_at(table: KnobTable, knob: Knob, version: str) -> str:
    """What the engine says its default is at a version."""
    found, key = knob.default, table.key(version)
    for since, default in knob.defaults.items():
        if not since or table.key(since) <= key:
            found = default
    return found


def life(table: KnobTable, name: str) -> Life:
    """The whole life of a flag (any spelling) or a variable: its forms and what became of it."""
    forms = tuple(table.forms(name))
    return Life(table.engine, name, forms, table.retirement(name))


def difference(table: KnobTable, before: str, after: str) -> Difference:
    """What changed from one version to another; raises UsageError ``engine-version-invalid``."""
    then = {knob.flag: knob for knob in _flags_first(edition(table, before).knobs)}
    now = {knob.flag: knob for knob in _flags_first(edition(table, after).knobs)}
    names = {name for knob in now.values() for name in (*knob.names, *knob.negatives)}
    gone = [_moved(table, knob, now) for flag, knob in then.items() if flag not in now]
    # An option whose canonical name changed while its old spellings live on is no change for a command line.
    gone = [moved for moved in gone if not moved.knob.names or not {*moved.knob.names} <= names]
    taken = {moved.to for moved in gone if moved.to}
    return Difference(
        added=tuple(knob for flag, knob in now.items() if flag not in then and flag not in taken),
        removed=tuple(moved for moved in gone if not moved.to),
        renamed=tuple(moved for moved in gone if moved.to),
        altered=tuple(
            Altered(flag, changes)
            for flag, knob in now.items()
            if flag in then and (changes := tuple(_changes(table, then[flag], before, knob, after)))
        ),
    )


def _flags_first(knobs: Iterable[Knob]) -> list[Knob]:
    """Flags before variables, each in the engine's own order."""
    return sorted(knobs, key=lambda knob: not knob.names)


def _moved(table: KnobTable, knob: Knob, now: Mapping[str, Knob]) -> Moved:
    rule = table.retirement(knob.option or knob.env_key)
    by = knob.renamed_to or (rule.replaced_by if rule else "")
    name = by.lstrip("-")
    note = "; ".join(filter(None, [rule.effect if rule else "", f"use {by}" if by else ""]))
    return Moved(knob, name if name in now else "", note)


def _changes(table: KnobTable, one: Knob, before: str, two: Knob, after: str) -> Iterator[Changed]:
    for column in _FORM:
        was, becomes = getattr(one, column), getattr(two, column)
        if _same(was, becomes):
            continue
        if isinstance(was, tuple) and isinstance(becomes, tuple):
            yield Changed(column, _only(was, becomes), _only(becomes, was))
        else:
            yield Changed(column, shown(was), shown(becomes))
    was, becomes = default_at(table, one, before), default_at(table, two, after)
    if was != becomes:
        yield Changed("default", was, becomes)


def _same(one: object, two: object) -> bool:
    return (sorted(one) == sorted(two)) if isinstance(one, tuple) and isinstance(two, tuple) else one == two


def _only(these: tuple[str, ...], without: tuple[str, ...]) -> str:
    return ", ".join(name for name in these if name not in without)


def shown(value: object) -> str:
    """A cell as text."""
    return "" if value is None else ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
