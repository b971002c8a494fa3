"""A file under judgement: its path as the user wrote it, its lines, and the exact place of a word in it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from archonctl.findings import Place
from archonctl.foreign.words import Setting, Word


@dataclass(frozen=True)
class Source:
    """``shown`` is the path for messages; ``engine`` and ``version`` are what the caller knows of the file."""

    shown: str
    text: str
    path: Path = Path()
    engine: str = ""
    version: str = ""
    reader: str = ""
    """What reads an env file, where that is known: ``compose``."""
    lines: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.lines.extend(self.text.split("\n"))

    def of_version(self, engine: str, version: str, reader: str = "") -> Source:
        """The same file, about an engine and version that another file names."""
        return Source(self.shown, self.text, self.path, engine, version, reader)

    def place(self, word: Word) -> Place:
        """Where a word begins: behind its quote, if it stands in one."""
        line = self.line(word.line)
        at = word.column - 1
        if word.text and not line.startswith(word.text, at):
            found = line.find(word.text, max(at, 0))
            at = found if found >= 0 else at
        return Place(self.shown, word.line, at + 1 if word.line else 0)

    def line(self, number: int) -> str:
        """One line's text; empty for a number that is none."""
        return self.lines[number - 1] if 0 < number <= len(self.lines) else ""

    def of_setting(self, setting: Setting, value: bool = False) -> Place:
        """Where a variable's name stands, or its value."""
        word = setting.value
        line = self.line(word.line)
        name = line.find(setting.name, max(0, word.column - 1))
        name = line.rfind(setting.name, 0, word.column) if name < 0 else name
        if name < 0:
            return Place(self.shown, word.line, word.column)
        if not value or not word.text:
            return Place(self.shown, word.line, name + 1)
        at = line.find(word.text, name + len(setting.name))
        return Place(self.shown, word.line, (at if at >= 0 else name) + 1)
