"""Where a key stands in a TOML text. Runs only when a line must be named: on errors and for origins."""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_right
from contextlib import suppress

Loc = tuple[str | int, ...]

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_SPACE = re.compile(r"[ \t]*")
_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_STRING = re.compile(
    r'"""(?:[^\\]|\\.)*?"{3,5}(?!")'
    r"|'''.*?'{3,5}(?!')"
    r'|"(?:[^"\\\n]|\\.)*"'
    r"|'[^'\n]*'",
    re.DOTALL,
)
_PLAIN = re.compile(r"[^,\]}#\n]*")


def key_lines(text: str) -> dict[Loc, int]:
    """The line (from 1) of every table, key and array element of a TOML text.

    ``text`` should be valid TOML; for anything else the part that could be followed is returned.
    """
    scan = _Scan(text.replace("\r\n", "\n"))
    with suppress(_Lost, RecursionError):  # half a map is a map: a key that is not in it gets the line of its table
        scan.document()
    return scan.lines


def line_of(lines: dict[Loc, int], loc: Loc) -> int | None:
    """The line of ``loc``, else of the nearest table around it; None for the document itself."""
    for end in range(len(loc), 0, -1):
        if loc[:end] in lines:
            return lines[loc[:end]]
    return None


class _Lost(Exception):
    """The text is not what the scanner can follow."""


class _Scan:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.lines: dict[Loc, int] = {}
        self._breaks = [found.start() for found in re.finditer("\n", text)]
        self._tables: dict[Loc, int] = {}
        """Arrays of tables met so far, and the index of the last element."""

    def document(self) -> None:
        here: Loc = ()
        while self._skip(_BLANK) < len(self.text):
            if self.text.startswith("[", self.at):
                here = self._header()
            else:
                self._pair(here)

    def _header(self) -> Loc:
        start, double = self.at, self.text.startswith("[[", self.at)
        self.at += 2 if double else 1
        loc: Loc = ()
        keys = self._key()
        for key in keys:
            loc = (*self._last(loc), key)
        if double:
            self._tables[loc] = self._tables.get(loc, -1) + 1
        self._note(self._last(loc), start)
        self._expect("]]" if double else "]")
        return self._last(loc)

    def _last(self, loc: Loc) -> Loc:
        return (*loc, self._tables[loc]) if loc in self._tables else loc

    def _pair(self, table: Loc) -> None:
        start = self.at
        loc = (*table, *self._key())
        self._note(loc, start)
        self._expect("=")
        self._value(loc)

    def _key(self) -> tuple[str, ...]:
        parts: list[str] = []
        while True:
            self._skip(_SPACE)
            if found := _BARE.match(self.text, self.at):
                parts.append(found[0])
            elif found := _STRING.match(self.text, self.at):
                parts.append(str(tomllib.loads(f"k={found[0]}")["k"]))
            else:
                raise _Lost
            self.at = found.end()
            self._skip(_SPACE)
            if not self.text.startswith(".", self.at):
                return tuple(parts)
            self.at += 1

    def _value(self, loc: Loc) -> None:
        self._skip(_SPACE)
        if found := _STRING.match(self.text, self.at):
            self.at = found.end()
        elif self.text.startswith("[", self.at):
            self._array(loc)
        elif self.text.startswith("{", self.at):
            self._inline(loc)
        else:
            self._skip(_PLAIN)

    def _array(self, loc: Loc) -> None:
        self.at += 1
        index = 0
        while not self._closed("]"):
            self._note((*loc, index), self.at)
            self._value((*loc, index))
            index += 1

    def _inline(self, loc: Loc) -> None:
        self.at += 1
        while not self._closed("}"):
            self._pair(loc)

    def _closed(self, mark: str) -> bool:
        self._skip(_BLANK)
        if self.text.startswith(",", self.at):
            self.at += 1
            self._skip(_BLANK)
        if self.at >= len(self.text):
            raise _Lost
        if self.text.startswith(mark, self.at):
            self.at += len(mark)
            return True
        return False

    def _expect(self, mark: str) -> None:
        self._skip(_SPACE)
        if not self.text.startswith(mark, self.at):
            raise _Lost
        self.at += len(mark)

    def _skip(self, pattern: re.Pattern[str]) -> int:
        found = pattern.match(self.text, self.at)
        self.at = found.end() if found else self.at
        return self.at

    def _note(self, loc: Loc, at: int) -> None:
        line = bisect_right(self._breaks, at - 1) + 1
        for end in range(1, len(loc) + 1):
            self.lines.setdefault(loc[:end], line)
