"""What the gate reads and what it returns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from archonctl.findings import Finding, Place, refuses


@dataclass(frozen=True, slots=True)
class Word:
    """One word of a file: its text as the reader of that file takes it, and where it stands.

    ``known`` is False where a part of it is only decided at run time (``$PORT``), ``splits`` is True where it may
    become several words or none (``$EXTRA_ARGS`` without quotes).
    """

    text: str
    line: int = 0
    column: int = 0
    known: bool = True
    splits: bool = False

    def place(self, path: str) -> Place:
        """The word's place in the file ``path``."""
        return Place(path, self.line, self.column)


@dataclass(frozen=True, slots=True)
class Variable:
    """One variable that a file sets for an engine."""

    name: Word
    value: Word


@dataclass(frozen=True, slots=True)
class Launch:
    """One start of an engine as a file writes it.

    ``engine`` is its kind and ``version`` the version that the file names (empty: not known). ``argv`` has the
    engine's own words, as the engine's parser gets them. ``image`` is the container image, where there is one.
    """

    engine: str
    argv: tuple[Word, ...]
    version: str = ""
    env: tuple[Variable, ...] = ()
    image: Word | None = None
    start: Word = Word("")
    """The word that names the program: findings about the whole command stand there."""


@dataclass(frozen=True, slots=True)
class GateReport:
    """Everything that was found, in the order of the paths given and then of the lines."""

    findings: tuple[Finding, ...]
    files: tuple[str, ...]
    """The files that were judged, as the user would write them."""
    strict: bool = False

    @property
    def refused(self) -> bool:
        """True if a start must not happen: an error, or with ``strict`` a warning."""
        return refuses(self.findings) or (self.strict and any(f.severity == "warning" for f in self.findings))


def in_order(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Sorted by file, line and column, each once."""
    unique = dict.fromkeys(findings)
    return tuple(sorted(unique, key=lambda f: (f.place.path, f.place.line, f.place.column, f.code)))
