"""Places within a declaration: from a dotted key to file, line and the column of its name or its value."""

from __future__ import annotations

import re
from pathlib import Path

from archonctl.deployment.load import LoadedEndpoint
from archonctl.errors import ArchonError
from archonctl.findings import Edit, Finding, Place, Severity

_ORIGIN = re.compile(r"(.+?):([0-9]+)(?:: .*)?", re.DOTALL)


class Declared:
    """The text of a loaded declaration; ``shown`` is its path as the user wrote it."""

    def __init__(self, loaded: LoadedEndpoint, shown: str) -> None:
        self.loaded = loaded
        self.shown = shown
        self.lines = _lines(loaded.copy or loaded.path)

    def place(self, key: str, value: bool = False) -> Place:
        """Where a dotted key is set (or, with ``value``, where its value begins); the file where it is not."""
        origin = self.loaded.origins.get(key, "")
        found = _ORIGIN.fullmatch(origin)
        if not found or origin.startswith(("flag ", "environment ")):
            return Place(origin) if origin.startswith(("flag ", "environment ")) else Place(self.shown)
        return self._at(int(found[2]), key, value)

    def _at(self, line: int, key: str, value: bool) -> Place:
        text = self.lines[line - 1] if 0 < line <= len(self.lines) else ""
        return Place(self.shown, line, column_of(text, key, value))

    def of_error(self, err: ArchonError) -> Place:
        """The place that an error names, with the column of the key that it names last."""
        found = _ORIGIN.fullmatch(err.where)
        if not found or err.where.startswith(("flag ", "environment ")):
            return Place(err.where) if err.where.startswith(("flag ", "environment ")) else Place(self.shown)
        if Path(found[1]).name != self.loaded.path.name:
            return Place(found[1], int(found[2]))
        return self._at(int(found[2]), err.where.rpartition(": ")[2], False)

    def finding(
        self, code: str, severity: Severity, message: str, key: str, fix: str = "", *, value: bool = True
    ) -> Finding:
        """A finding about one key."""
        return Finding(code, severity, message, self.place(key, value), fix)

    def rename(self, key: str, name: str) -> Edit | None:
        """The edit that gives a key another name; ``None`` where the line holds more than the one key."""
        return self._edit(key, name)

    def remove(self, key: str) -> Edit | None:
        """The edit that takes a key's line out."""
        return self._edit(key, None)

    def _edit(self, key: str, name: str | None) -> Edit | None:
        place = self.place(key)
        if place.path != self.shown or not 0 < place.line <= len(self.lines):
            return None
        old = self.lines[place.line - 1]
        bare = key.rpartition(".")[2]
        found = re.fullmatch(r"(\s*)([A-Za-z0-9_-]+)(\s*=\s*)([^\[{\"'#]+|\"[^\"\\]*\"|'[^']*')(#.*)?", old)
        if not found or found[2].replace("_", "-") != bare.replace("_", "-"):
            return None
        return Edit(self.shown, place.line, old, None if name is None else old.replace(found[2], name, 1))


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError):
        return []


def column_of(line: str, key: str, value: bool = False) -> int:
    """The column of a dotted key's last name within its line, or of its value; 1 where it is not found."""
    bare = re.sub(r"\[[0-9]+\]$", "", key).rpartition(".")[2]
    name = re.escape(bare).replace("\\-", "[-_]")
    found = re.search(rf"(?<![A-Za-z0-9_-])[\"']?{name}[\"']?\s*=\s*\[?\s*[\"']?", line)
    return ((found.end() if value else found.start()) if found and bare else len(line) - len(line.lstrip())) + 1


def of_error(err: ArchonError, shown: str, severity: Severity = "error") -> list[Finding]:
    """An error of a declaration as findings, all its problems; ``shown`` stands where it names no place."""
    found: list[Finding] = []
    lines = _lines(Path(shown))
    for problem in getattr(err, "problems", ()) or (err,):
        match = _ORIGIN.fullmatch(problem.where)
        place = Place(problem.where or shown)
        if match:
            number = int(match[2])
            text = lines[number - 1] if number <= len(lines) and match[1] == shown else ""
            key = getattr(problem, "key", "")
            place = Place(match[1], number, column_of(text, key, problem.code != "declaration-unknown-key"))
        found.append(Finding(problem.code, severity, problem.message, place, problem.hint))
    return found
