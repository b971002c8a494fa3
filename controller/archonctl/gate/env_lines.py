"""Env files of any grammar: what systemd reads, and whether a shell and a container runtime read the same.

Sources: ``parse_env_file_internal`` in systemd's src/basic/env-file.c; docker run(1) "--env-file" and its
``parseKeyValueFile`` (the rest of the line is the value, as it stands); bash(1) "SIMPLE COMMAND EXPANSION".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from archonctl.errors import ArchonError
from archonctl.foreign.shell import read_script
from archonctl.foreign.words import Lines, Setting, Word

_BLANKS = " \t"
_QUOTED = '"\\`$'


@dataclass(frozen=True, slots=True)
class EnvLine:
    """One assignment: as systemd reads it, and its raw text from the name to the end of the last line."""

    name: Word
    value: Word
    raw: str


def env_lines(text: str) -> Iterator[EnvLine]:
    """Every assignment of an env file. Lines without ``=`` are left out, as systemd does."""
    lines = Lines(text)
    at, end = 0, len(text)
    while at < end:
        if text[at] in " \t\r\n":
            at += 1
        elif text[at] in "#;":
            at = _comment_end(text, at)
        else:
            start, stop = at, _line_end(text, at)
            equals = text.find("=", at, stop)
            if equals < 0:
                at = stop
                continue
            value, at, begin = _value(text, equals + 1)
            name = text[start:equals].rstrip(_BLANKS)
            yield EnvLine(Word(name, *lines.at(start)), Word(value, *lines.at(begin)), text[start:at])


def _comment_end(text: str, at: int) -> int:
    """A backslash at the end of a comment takes the next line into it."""
    while at < len(text) and text[at] not in "\r\n":
        at += 2 if text[at] == "\\" else 1
    return at


def _line_end(text: str, at: int) -> int:
    while at < len(text) and text[at] not in "\r\n":
        at += 1
    return at


def _value(text: str, at: int) -> tuple[str, int, int]:
    """A value, where it ends, and where its first character stands."""
    out: list[str] = []
    begin = kept = -1
    quote, plain = "", False
    while at < len(text):
        char = text[at]
        if quote:
            at, quote = _inside(text, at, quote, out)
            kept = len(out)
            continue
        if char in "\r\n":
            break
        if begin < 0 and char not in _BLANKS:
            begin = at + (char in "\"'")
        if char in "\"'" and not plain:
            quote = char
        elif char == "\\":
            plain = True
            at += 1
            if at < len(text) and text[at] not in "\r\n":
                out.append(text[at])
                kept = len(out)
        elif char in _BLANKS and not plain:
            pass
        else:
            plain = True
            out.append(char)
            kept = kept if char in _BLANKS else len(out)
        at += 1
    return "".join(out[: max(kept, 0)]), min(at, len(text)), begin if begin >= 0 else at


def _inside(text: str, at: int, quote: str, out: list[str]) -> tuple[int, str]:
    """One step within quotes: where to go on, and the quote that is still open."""
    char = text[at]
    if char == quote:
        return at + 1, ""
    if char == "\\" and quote == '"' and at + 1 < len(text):
        following = text[at + 1]
        if following in _QUOTED:
            out.append(following)
        elif following != "\n":
            out.append("\\" + following)
        return at + 2, quote
    out.append(char)
    return at + 1, quote


@dataclass(frozen=True, slots=True)
class Readings:
    """What three readers take one line for; None where a shell's answer depends on the run, or is an error."""

    systemd: str
    docker: str
    shell: str | None


def readings(line: EnvLine) -> Readings:
    """How the readers of env files take one assignment."""
    first = line.raw.split("\n", 1)[0]
    return Readings(line.value.text, first.partition("=")[2], _by_shell(line.raw))


def _by_shell(raw: str) -> str | None:
    """The value that a sourcing shell assigns, told by a command of ours behind the line."""
    try:
        script = read_script(f"{raw} :")
    except ArchonError:
        return None
    call = script.commands[0] if len(script.commands) == 1 else None
    if call is None or call.argv != (":",) or len(call.env) != 1 or call.env[0].value.unresolved:
        return None
    return call.env[0].value.text


def settings(text: str) -> tuple[Setting, ...]:
    """The variables of an env file as systemd reads them; ``export`` in front of a name is passed over."""
    found = []
    for line in env_lines(text.removeprefix("\ufeff")):
        name = line.name.text.removeprefix("export ").strip()
        found.append(Setting(name, Word(line.value.text, line.name.line, line.name.column)))
    return tuple(found)
