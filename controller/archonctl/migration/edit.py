"""Changes of a TOML text line by line, so that every comment and blank stays where its author put it."""

from __future__ import annotations

import re
import tomllib

import tomli_w

from archonctl.deployment.schema import KnobValue
from archonctl.deployment.toml_lines import Loc, key_lines
from archonctl.errors import DeclarationError

_KEY = r"""(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')"""
_PAIR = re.compile(rf"^(?P<lead>\s*(?:{_KEY}\s*\.\s*)*)(?P<key>{_KEY})(?P<equals>\s*=\s*)(?P<rest>.*)$")

_STRING = re.compile(r"""(?!\"{3}|'{3})(?:"(?:[^"\\]|\\.)*"|'[^']*')""")
_PLAIN = re.compile(r"[^\[{#'\"][^#]*")


class Edits:
    """A text under change. Raises DeclarationError ``migrate-layout`` for a key that has no line of its own."""

    def __init__(self, text: str, where: str) -> None:
        self._lines = text.split("\n")
        self._where = where

    @property
    def text(self) -> str:
        """The text as it is now."""
        return "\n".join(self._lines)

    def remove(self, loc: Loc) -> None:
        """Take a key out, with what stands behind it on its line."""
        del self._lines[self._line(loc)]

    def rename(self, loc: Loc, key: str) -> None:
        """Another key for the same value."""
        at = self._line(loc)
        found = self._pair(at, loc)
        self._lines[at] = f"{found['lead']}{key}{found['equals']}{found['rest']}"

    def set(self, loc: Loc, value: KnobValue) -> None:
        """Another value; a comment behind it stays."""
        at = self._line(loc)
        found = self._pair(at, loc)
        size = _value_size(found["rest"])
        if not size:
            raise self._layout(loc)
        self._lines[at] = f"{found['lead']}{found['key']}{found['equals']}{shown(value)}{found['rest'][size:]}"

    def add(self, table: Loc, key: str, value: KnobValue) -> None:
        """A new key behind the last one of its table; the table too, behind the one around it, where there is none."""
        lines = key_lines(self.text)
        pair = f"{key} = {shown(value)}"
        if table in lines:
            own = [line for loc, line in lines.items() if loc[: len(table)] == table]
            self._lines.insert(max(own), pair)
            return
        around = [line for loc, line in lines.items() if loc[:1] == table[:1]]
        at = max(around, default=len(self._lines))
        self._lines[at:at] = ["", f"[{'.'.join(map(str, table))}]", pair]

    def append(self, text: str) -> None:
        """More text at the end."""
        body = self.text.rstrip("\n")
        self._lines = f"{body}\n\n{text}".split("\n")

    def _line(self, loc: Loc) -> int:
        line = key_lines(self.text).get(loc)
        found = _PAIR.match(self._lines[line - 1]) if line else None
        if line is None or found is None or next(iter(tomllib.loads(f"{found['key']} = 0"))) != loc[-1]:
            raise self._layout(loc)
        return line - 1

    def _pair(self, at: int, loc: Loc) -> re.Match[str]:
        found = _PAIR.match(self._lines[at])
        if found is None:
            raise self._layout(loc)
        return found

    def _layout(self, loc: Loc) -> DeclarationError:
        key = ".".join(map(str, loc))
        return DeclarationError(
            "migrate-layout",
            f"{key} has no line of its own, so the text cannot be changed without moving what stands around it",
            where=self._where,
            hint="write one key a line, under a header such as [engine.knobs]",
        )


def _value_size(rest: str) -> int:
    """How many characters of ``rest`` are its value, a text or a plain one; 0 for an array, a table, or many lines."""
    found = _STRING.match(rest) if rest[:1] in ("'", '"') else _PLAIN.match(rest)
    return len(found[0].rstrip()) if found else 0


def shown(value: KnobValue) -> str:
    """A value as a declaration has it; whole numbers from 10,000 on with separators."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10_000:
        return f"{value:_}"
    return tomli_w.dumps({"k": value}).removeprefix("k = ").rstrip("\n")
