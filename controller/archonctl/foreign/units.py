"""systemd units, drop-ins and Quadlets as text: every assignment with its place, and the words of a command line.

Source: systemd.syntax(7) "Quoting" and the rules for continuation lines, systemd.service(5) "Command lines",
systemd.exec(5) "Environment=".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from archonctl.foreign.words import Command, Located, Setting, Unread, Word

_ASSIGNMENT = re.compile(r"(?P<key>[A-Za-z0-9_-]+)[ \t]*=[ \t]*")
_SECTION = re.compile(r"\[(?P<name>[^\[\]]+)\][ \t]*")
_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "s": " "}
_CODED = re.compile(r"x([0-9a-fA-F]{2})|([0-7]{3})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})")
_EXEC_KEYS = ("ExecStart", "ExecStartPre", "ExecStartPost", "ExecReload", "ExecStop")
_OPEN = re.compile(r"%%|%[A-Za-z]|\$\$|\$\{[A-Za-z_][A-Za-z0-9_]*\}|\$[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Entry:
    """One assignment: continuation lines joined, not unquoted. ``value.at(offset)`` gives the place of any part."""

    section: str
    key: str
    value: Located
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Unit:
    """One unit file: its assignments in order."""

    entries: tuple[Entry, ...]
    unread: tuple[Unread, ...]

    def all(self, section: str, key: str) -> tuple[Entry, ...]:
        """Every assignment of a key that is in force: an empty one takes those before it away."""
        found: list[Entry] = []
        for entry in self.entries:
            if (entry.section, entry.key) == (section, key):
                found = [*found, entry] if entry.value.text else []
        return tuple(found)

    def last(self, section: str, key: str) -> Entry | None:
        """The last assignment of a key; None if there is none or it is empty."""
        return (self.all(section, key) or (None,))[-1]

    def commands(self) -> tuple[Command, ...]:
        """Every command line of ``Exec*=``, without the prefixes ``@ - : + !``."""
        found: list[Command] = []
        for key in _EXEC_KEYS:
            for entry in self.all("Service", key):
                found += _commands(entry)
        return tuple(found)

    def environment(self, section: str = "Service") -> tuple[Setting, ...]:
        """The variables of ``Environment=``."""
        found = []
        for entry in self.all(section, "Environment"):
            for word in split_unit_words(entry.value):
                name, equals, _ = word.text.partition("=")
                if equals:
                    found.append(Setting(name, _after(word, len(name) + 1)))
        return tuple(found)


def _after(word: Word, count: int) -> Word:
    return Word(word.text[count:], word.line, word.column, word.unresolved, word.assumed, word.conditional)


def read_unit(text: str) -> Unit:
    """Read a unit, drop-in or Quadlet."""
    entries: list[Entry] = []
    unread: list[Unread] = []
    section = ""
    lines = text.split("\n")
    at = 0
    while at < len(lines):
        line, number = lines[at].rstrip("\r"), at + 1
        at += 1
        lead = len(line) - len(line.lstrip())
        if not line.strip() or line[lead] in "#;":
            continue
        if found := _SECTION.fullmatch(line, lead):
            section = found["name"]
        elif found := _ASSIGNMENT.match(line, lead):
            value, at = _joined(lines, at, line, found.end())
            entries.append(Entry(section, found["key"], value, number, lead + 1))
        else:
            unread.append(Unread(line.strip()[:80], "neither a section nor KEY=VALUE", number, lead + 1))
    return Unit(tuple(entries), tuple(unread))


def _joined(lines: list[str], at: int, first: str, start: int) -> tuple[Located, int]:
    """A value with its continuation lines: backslash and line break become one space, comments within go."""
    text, marks = first[start:], [(0, at, start + 1)]
    pieces: list[str] = []
    length = 0
    while text.endswith("\\"):
        pieces.append(text[:-1] + " ")
        length += len(pieces[-1])
        while at < len(lines) and lines[at].lstrip()[:1] in ("#", ";") and lines[at].strip():
            at += 1
        if at >= len(lines):
            text = ""
            break
        text = lines[at].rstrip("\r")
        at += 1
        marks.append((length, at, 1))
    whole = "".join([*pieces, text]).rstrip()
    return Located(whole, tuple(marks)), at


def _commands(entry: Entry) -> list[Command]:
    """``;`` as a word of its own, without quotes, separates commands; ``:`` in front switches ``$`` off."""
    found: list[Command] = []
    for part in _at_semicolons(entry.value):
        prefix = re.match(r"[@\-:+!|]*", part[0].text)
        size = prefix.end() if prefix else 0
        head = Word(part[0].text[size:], part[0].line, part[0].column + size, part[0].unresolved)
        rest = part[2:] if "@" in part[0].text[:size] else part[1:]
        opened = head.text and ":" not in part[0].text[:size]
        found.append(Command(tuple(_open(word, bool(opened)) for word in (head, *rest)), label=entry.key))
    return found


def _at_semicolons(value: Located) -> list[list[Word]]:
    parts: list[list[Word]] = [[]]
    for word, written in _split(value):
        if written == ";":
            parts.append([])
        else:
            parts[-1].append(replace(word, text=";") if written == "\\;" else word)
    return [part for part in parts if part]


def _open(word: Word, dollars: bool) -> Word:
    """Specifiers and variables that stand in a word: they are named, doubled marks are taken as themselves."""
    names: list[str] = []

    def one(found: re.Match[str]) -> str:
        mark = found[0]
        if mark == "%%":
            return "%"
        if mark[0] == "$" and not dollars:
            return mark
        if mark == "$$":
            return "$"
        names.append(mark)
        return mark

    text = _OPEN.sub(one, word.text)
    return Word(text, word.line, word.column, tuple(dict.fromkeys(names)))


def split_unit_words(value: Located) -> tuple[Word, ...]:
    """The words of a value in systemd's quoting. An escape that systemd does not know stays as written."""
    return tuple(word for word, _ in _split(value))


def _split(value: Located) -> Iterator[tuple[Word, str]]:
    """Each word, and how it is written."""
    text, at = value.text, 0
    while True:
        while at < len(text) and text[at].isspace():
            at += 1
        if at >= len(text):
            return
        word, end = _word(text, at)
        yield Word(word, *value.at(at)), text[at:end]
        at = end


def _word(text: str, at: int) -> tuple[str, int]:
    found: list[str] = []
    quote = ""
    while at < len(text):
        char = text[at]
        if char == "\\" and at + 1 < len(text):
            decoded, at = _escape(text, at + 1)
            found.append(decoded)
            continue
        if quote:
            if char == quote:
                quote = ""
            else:
                found.append(char)
        elif char in "\"'":
            quote = char
        elif char.isspace():
            break
        else:
            found.append(char)
        at += 1
    return "".join(found), at


def _escape(text: str, at: int) -> tuple[str, int]:
    if coded := _CODED.match(text, at):
        number = int(coded[1] or coded[3] or coded[4] or "0", 16) if not coded[2] else int(coded[2], 8)
        return (chr(number) if 0 < number < 0x110000 else coded[0]), coded.end()
    char = text[at]
    if char in _ESCAPES:
        return _ESCAPES[char], at + 1
    return (char if char in "\\\"'" or char.isspace() else f"\\{char}"), at + 1
