"""A unit as systemd sees it: its own file and the drop-ins after it, each assignment with the file it stands in."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from archonctl.findings import Place
from archonctl.foreign.units import Entry, Unit
from archonctl.gate.source import Source


@dataclass(frozen=True, slots=True)
class Directive:
    """One assignment in force."""

    source: Source
    entry: Entry

    @property
    def key(self) -> str:
        """The key's name."""
        return self.entry.key

    @property
    def text(self) -> str:
        """The value as written, continuation lines joined."""
        return self.entry.value.text

    @property
    def place(self) -> Place:
        """Where the key stands."""
        return Place(self.source.shown, self.entry.line, self.entry.column)

    def at(self, offset: int = 0) -> Place:
        """Where a character of the value stands."""
        return Place(self.source.shown, *self.entry.value.at(offset))


@dataclass(frozen=True, slots=True)
class UnitFile:
    """The assignments of one unit in order: its own file's, then those of its drop-ins."""

    source: Source
    directives: tuple[Directive, ...]

    @classmethod
    def of(cls, source: Source, unit: Unit, drop_ins: Iterable[tuple[Source, Unit]] = ()) -> UnitFile:
        """A unit with its drop-ins, in the order in which systemd reads them."""
        parts = [(source, unit), *drop_ins]
        return cls(source, tuple(Directive(file, entry) for file, read in parts for entry in read.entries))

    def all(self, section: str, key: str) -> tuple[Directive, ...]:
        """The assignments of a key that are in force: an empty one takes back what stood before it."""
        found: list[Directive] = []
        for item in self.directives:
            if item.entry.section == section and item.key == key:
                found = [*found, item] if item.text else []
        return tuple(found)

    def last(self, section: str, key: str) -> Directive | None:
        """The assignment that decides for a key that has one value."""
        return (self.all(section, key) or (None,))[-1]

    def has(self, section: str) -> bool:
        """True if anything in a section is set."""
        return any(item.entry.section == section for item in self.directives)

    def where(self, section: str, key: str) -> Place:
        """Where a key is set, else the section's first line, else the file."""
        found = self.last(section, key)
        if found is not None:
            return found.place
        first = next((item for item in self.directives if item.entry.section == section), None)
        return first.place if first else Place(self.source.shown)
