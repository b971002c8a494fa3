"""Lines that systemd reads otherwise than they look.

Source: systemd.exec(5) "EnvironmentFile=", "Environment="; systemd.service(5) "Command lines"; systemd.unit(5)
"Specifiers"; ``config_parse_unit_env_file`` and ``unit_printf`` in systemd's src/core.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from archonctl.findings import Edit, Finding
from archonctl.foreign.units import split_unit_words
from archonctl.gate.unit.unit import Directive, UnitFile

SPECIFIERS = frozenset("aAbBCdDEfgGhHiIjJlLmMnNopPqsStTuUvVwWyY%")
_EXEC = ("ExecStart", "ExecStartPre", "ExecStartPost", "ExecStop", "ExecStopPost", "ExecReload", "ExecCondition")
_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ash", "ksh"})
_SHELL_WORD = re.compile(r"&&|\|\|?|&|[0-9]?>{1,2}(&[0-9]|[^=].*)?|[0-9]?<")
_DEFAULTED = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*:?[-=+?][^}]*\}")
_BRACELESS = re.compile(r"(?<=[^$])\$[A-Za-z_][A-Za-z0-9_]*")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


def quoting_findings(unit: UnitFile) -> list[Finding]:
    """Traps in every command and variable of a unit."""
    found: list[Finding] = []
    for item in unit.directives:
        if item.entry.section == "Service" and item.key == "EnvironmentFile":
            found += _environment_file(item)
        elif item.entry.section in ("Service", "Container") and item.key == "Environment":
            found += [*_environment(item), *_percent(item), *_open_quote(item)]
        elif item.entry.section == "Service" and item.key in _EXEC:
            found += [*_exec(item), *_percent(item), *_open_quote(item)]
    return found


def _environment_file(item: Directive) -> Iterator[Finding]:
    text = item.text
    if not text:
        return
    bare = re.sub(r"[\"']", "", text)
    result = "the line is ignored, the service starts without these variables"
    if bare != text and text.lstrip("-")[:1] in ("'", '"'):
        message = f"EnvironmentFile={text} keeps its quotes, so it is no absolute path: {result}"
        fix = f"EnvironmentFile={bare}"
        yield Finding("unit-env-file-ignored", "error", message, item.at(), fix, _edit(item, bare))
    elif not bare.removeprefix("-").startswith(("/", "%")):
        message = f"EnvironmentFile={text} is no absolute path: {result}"
        yield Finding("unit-env-file-ignored", "error", message, item.at(), "name it from the root on")


def _edit(item: Directive, value: str) -> Edit | None:
    old = item.source.line(item.entry.line)
    if item.text not in old:
        return None
    return Edit(item.source.shown, item.entry.line, old, old.replace(item.text, value, 1))


def _environment(item: Directive) -> Iterator[Finding]:
    for word in split_unit_words(item.entry.value):
        name, equals, value = word.text.partition("=")
        place = item.source.place(word)
        if not equals or not _NAME.fullmatch(name):
            message = f"{word.text[:60]!r} is no assignment: systemd ignores it; a value with blanks needs quotes"
            fix = 'Environment="NAME=value with blanks"'
            yield Finding("unit-environment-word", "error", message, place, fix)
        elif found := re.search(r"\s([A-Za-z_][A-Za-z0-9_]*)=", value):
            message = f"{name} is set to {value[:60]!r}: {found[1]} becomes part of the value, not a variable"
            yield Finding("unit-environment-word", "warning", message, place, "quote each assignment by itself")


def _open_quote(item: Directive) -> Iterator[Finding]:
    quote, at, text = "", 0, item.text
    while at < len(text):
        char = text[at]
        if char == "\\":
            at += 1
        elif quote and char == quote:
            quote = ""
        elif not quote and char in "\"'":
            quote, start = char, at
        at += 1
    if quote:
        message = f"a quote ({quote}) is opened and not closed: systemd ignores or refuses the whole line"
        yield Finding("unit-quote-open", "error", message, item.at(start), "close it")


def _exec(item: Directive) -> Iterator[Finding]:
    literal = re.match(r"[-@+!|]*:", item.text) is not None
    words = split_unit_words(item.entry.value)
    if any(word.text.lstrip("-@:+!|").rpartition("/")[2] in _SHELLS for word in words):
        return  # an inner shell may well want these characters
    program = words[0].text.lstrip("-@:+!|") if words else ""
    if program.startswith(("~", "./", "../", "$")):
        message = f"{program[:60]!r} is no absolute path, and no shell resolves it here"
        yield Finding("unit-shell-syntax", "error", message, item.source.place(words[0]), "write the whole path")
    for word in words[1:]:
        if found := _trap(word.text, literal):
            yield Finding(found[0], "error", found[1], item.source.place(word), found[2])


def _trap(text: str, literal: bool) -> tuple[str, str, str] | None:
    """Code, message and fix of a word that a shell would read otherwise than systemd."""
    shell = "wrap the command in /bin/sh -c '...'"
    if _SHELL_WORD.fullmatch(text):
        message = f"{text[:60]!r} is shell syntax: systemd runs no shell, the engine gets it as an argument"
        return "unit-shell-syntax", message, f"{shell}, or use StandardOutput="
    if "$(" in text or (text.startswith("`") and text.endswith("`")):
        message = f"{text[:60]!r} is a shell's substitution: systemd runs no shell, the engine gets the text"
        return "unit-shell-syntax", message, shell
    if text.startswith("~/"):
        message = f"{text[:60]!r} starts with ~, which no shell resolves here"
        return "unit-shell-syntax", message, "write the whole path, or %h"
    plain = "" if literal else text.replace("$$", "")
    if found := _DEFAULTED.search(plain):
        message = f"systemd knows no default in {found[0]!r}: the argument is not what a shell would make of it"
        return "unit-dollar", message, "set the variable with Environment="
    if found := _BRACELESS.search(plain):
        message = f"{found[0]} within a word stays as it is: only ${{NAME}} is replaced there"
        return "unit-dollar", message, f"${{{found[0][1:]}}}, or $$ for a dollar sign"
    return None


def _percent(item: Directive) -> Iterator[Finding]:
    """``%`` begins a specifier wherever it stands; one that does not exist makes the whole line void."""
    at, text = 0, item.text
    while (at := text.find("%", at)) >= 0:
        following = text[at + 1 : at + 2]
        if following == "" or following not in SPECIFIERS:
            message = f"'%{following}' is no specifier, so systemd ignores or refuses the line"
            yield Finding("unit-percent", "error", message, item.at(at), "a percent sign is written %%")
        elif text[at - 1 : at] == "{" and following != "%":
            message = f"'{{%{following}' is taken for the specifier %{following}"
            yield Finding("unit-percent", "warning", message, item.at(at), "a percent sign is written %%")
        at += 2
