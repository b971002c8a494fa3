"""An env file as systemd reads it: more lenient than what this project writes. Source: systemd.exec(5)."""

from __future__ import annotations

import re

from archonctl.foreign.units import split_unit_words
from archonctl.foreign.words import Located, Setting, Unread, Word

_LINE = re.compile(r"[ \t]*([A-Za-z_][A-Za-z0-9_]*)=")


def read_env_file(text: str) -> tuple[tuple[Setting, ...], tuple[Unread, ...]]:
    """The variables of an ``EnvironmentFile=``, the last of two of one name, and the lines that are none."""
    found: dict[str, Setting] = {}
    unread: list[Unread] = []
    lines = text.split("\n")
    at = 0
    while at < len(lines):
        line, number = lines[at].rstrip("\r"), at + 1
        at += 1
        while line.endswith("\\") and at < len(lines):
            line, at = line[:-1] + lines[at].rstrip("\r"), at + 1
        if not line.strip() or line.lstrip()[0] in "#;":
            continue
        name = _LINE.match(line)
        if name is None:
            unread.append(Unread(line.strip()[:80], "neither NAME=value nor a comment", number, 1))
            continue
        value = line[name.end() :].strip()
        if value[:1] in ("'", '"'):
            words = split_unit_words(Located(value, ((0, number, name.end() + 1),)))
            value = words[0].text if words else ""
        found[name[1]] = Setting(name[1], Word(value, number, name.end() + 1))
    return tuple(found.values()), tuple(unread)
