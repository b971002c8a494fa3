"""Env files: lines that their readers do not agree on, and lines that some of them leave out."""

from __future__ import annotations

import re
from collections.abc import Iterator

from archonctl.findings import Edit, Finding, Place
from archonctl.foreign.words import Word
from archonctl.gate.env_lines import EnvLine, env_lines, readings

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_EXPORT = re.compile(r"export[ \t]+")


def env_findings(path: str, text: str) -> list[Finding]:
    """What is wrong with the file whatever it sets."""
    found: list[Finding] = []
    if text.startswith("\ufeff"):
        message = "the file begins with a byte-order mark, which becomes part of the first variable's name"
        found.append(Finding("env-name-invalid", "error", message, Place(path, 1, 1), "save it without one"))
    seen: dict[str, int] = {}
    lines = text.split("\n")
    for line in env_lines(text.removeprefix("\ufeff")):
        found += _line(path, line, lines)
        name = line.name
        if name.text in seen:
            message = f"{name.text} is set in line {seen[name.text]} and again here: the last one counts"
            found.append(Finding("env-set-twice", "warning", message, _at(path, name), "keep one of them"))
        seen[name.text] = name.line
    if "\r\n" in text:
        message = "the lines end in CR LF: a shell and docker keep the CR at the end of each value, systemd does not"
        place = Place(path, text[: text.index("\r\n")].count("\n") + 1)
        found.append(Finding("env-readers-differ", "warning", message, place, "save it with LF"))
    return found


def _line(path: str, line: EnvLine, lines: list[str]) -> Iterator[Finding]:
    name, value = line.name, line.value
    if taken := _EXPORT.match(name.text):
        old = lines[name.line - 1]
        edit = Edit(path, name.line, old, old.replace(taken[0], "", 1)) if taken[0] in old else None
        message = f"{name.text!r}: systemd and docker take no 'export', the variable is not set for a service"
        yield Finding("env-export", "warning", message, _at(path, name), "take 'export' out", edit)
    elif not _NAME.fullmatch(name.text):
        message = f"{name.text[:60]!a} is no variable name: systemd leaves the line out"
        yield Finding("env-name-invalid", "warning", message, _at(path, name), "letters, digits and underscore")
        return
    read = readings(line)
    raw = line.raw.partition("=")[2].strip()
    if read.shell is None:
        if "$" in raw or "`" in raw:
            message = f"{name.text}: a shell replaces what follows '$' or a backquote, systemd and docker keep it"
            yield Finding("env-readers-differ", "warning", message, _at(path, value), "write the value out")
        elif read.systemd != raw or " " in raw:
            message = f"{name.text}: systemd reads {_short(read.systemd)}, a shell reads the line as a command"
            yield Finding("env-readers-differ", "warning", message, _at(path, value), "quote the whole value")
    elif read.shell != read.systemd:
        three = f"systemd reads {_short(read.systemd)}, a shell {_short(read.shell)}, docker {_short(read.docker)}"
        message = f"{name.text}: {three}"
        yield Finding(
            "env-readers-differ", "warning", message, _at(path, value), "a value without blanks, quotes and #"
        )
    elif read.docker.strip("\r") != read.systemd:
        yield _docker(path, line, read.systemd, read.docker)


def _docker(path: str, line: EnvLine, meant: str, docker: str) -> Finding:
    name, value = line.name, line.value
    if '\\"' in docker:
        message = (
            f"{name.text}: docker, podman and old systemd keep the backslashes of {_short(docker)}; "
            f"a shell and today's systemd read {_short(meant)}"
        )
        fix = f"single quotes for JSON: {name.text}='{meant}'" if "'" not in meant else "put the JSON into a file"
        return Finding("env-readers-differ", "warning", message, _at(path, value), fix)
    message = (
        f"{name.text}: docker and podman --env-file keep {_short(docker)} as it stands, others read {_short(meant)}"
    )
    return Finding("env-readers-differ", "note", message, _at(path, value), "")


def _short(text: str) -> str:
    return f"{text[:40]!a}" + ("..." if len(text) > 40 else "")


def _at(path: str, word: Word) -> Place:
    return Place(path, word.line, word.column)
