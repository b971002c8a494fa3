"""What the gate returns."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from archonctl.findings import Finding, refuses


@dataclass(frozen=True, slots=True)
class GateReport:
    """Everything that was found, sorted by file, line and column."""

    findings: tuple[Finding, ...]
    files: tuple[str, ...]
    """The files that were judged, as the user would write them."""
    strict: bool = False
    skipped: tuple[str, ...] = ()
    """Files in the folders given that start no engine."""

    @property
    def refused(self) -> bool:
        """True if a start must not happen: an error, or with ``strict`` a warning."""
        return refuses(self.findings) or (self.strict and any(f.severity == "warning" for f in self.findings))


def in_order(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Sorted by file, line and column, each once."""
    return tuple(sorted(dict.fromkeys(findings), key=lambda f: (f.place.path, f.place.line, f.place.column, f.code)))
