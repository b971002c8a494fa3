"""What a check found, as a value: every check of a declaration, a file, a host or a command line ends in these."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning", "note"]
"""``error`` refuses (exit 4 from the gate); ``warning`` is said and passes; ``note`` is background."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where: a path as the user wrote it, line and column from 1; 0 where there is none."""

    path: str = ""
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        parts = [self.path, *(str(number) for number in (self.line, self.column) if number)]
        return ":".join(part for part in parts if part)


@dataclass(frozen=True, slots=True)
class Edit:
    """A safe change: ``old`` (one line's text, without its line break) becomes ``new``; ``None`` removes the line."""

    path: str
    line: int
    old: str
    new: str | None


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding. ``code`` is stable and has a page in ``runbooks/``; ``message`` names both values.

    ``fix`` is an instruction to a person; ``edit`` the same as a change that a tool may make.
    """

    code: str
    severity: Severity
    message: str
    place: Place = Place()
    fix: str = ""
    edit: Edit | None = None

    def __str__(self) -> str:
        where = f"{self.place}: " if str(self.place) else ""
        return f"{self.code} {where}{self.message}{f' ({self.fix})' if self.fix else ''}"


def refuses(findings: Iterable[Finding]) -> bool:
    """True if any of them is an error."""
    return any(finding.severity == "error" for finding in findings)
