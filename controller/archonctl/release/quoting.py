"""An argv as text that a reader turns back into exactly that argv: a unit's ExecStart, and a shell script."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from archonctl.errors import DeclarationError

_SURROGATE = re.compile("[\ud800-\udfff]")
"""Stand-ins of bytes that are no UTF-8."""

_ESCAPES = {"\\": "\\\\", '"': '\\"', "%": "%%"}


def exec_start(argv: Sequence[str]) -> str:
    """The value of ``ExecStart=`` for an argv.

    Every word is quoted; quotes and backslashes are escaped, ``%`` is doubled (specifiers), control characters are
    written as ``\\xNN``. The ``:`` in front switches off ``$`` expansion, so that a dollar sign stays one.
    Source: systemd.service(5) "Command lines", systemd.syntax(7) "Quoting". Raises DeclarationError
    ``argument-unrepresentable``.
    """
    _check(argv)
    return ":" + " ".join(map(unit_word, argv))


def unit_word(word: str, *, dollars: bool = False) -> str:
    """One word in a unit's quotes. ``dollars`` doubles ``$``, for where systemd would expand a variable."""
    text = "".join(map(_escape, word))
    return f'"{text.replace("$", "$$") if dollars else text}"'


def _escape(char: str) -> str:
    if char < " " or char == "\x7f":
        return f"\\x{ord(char):02x}"
    return _ESCAPES.get(char, char)


def shell_words(argv: Sequence[str]) -> str:
    """The words for a POSIX shell, each in single quotes. Raises DeclarationError ``argument-unrepresentable``."""
    _check(argv)
    return " ".join("'" + word.replace("'", "'\\''") + "'" for word in argv)


def start_script(argv: Sequence[str], env: Mapping[str, str], remarks: Sequence[str] = ()) -> str:
    """A shell script that becomes ``argv``, complete in itself: the environment is exported first.

    systemd would give the environment of a unit to its root commands as well. Raises DeclarationError
    ``argument-unrepresentable``.
    """
    said = ["# Rendered by archonctl from the declaration.", *(f"# {line}" for line in remarks)]
    exports = [f"export {shell_words([f'{name}={value}'])}" for name, value in sorted(env.items())]
    return "\n".join(["#!/bin/sh", *said, *exports, f"exec {shell_words(argv)}", ""])


def _check(argv: Sequence[str]) -> None:
    if not argv or not argv[0]:
        raise DeclarationError("argument-unrepresentable", "the command line has no program")
    for number, word in enumerate(argv):
        reason = ""
        if "\0" in word:
            reason = "a NUL character, which no process can be given"
        elif _SURROGATE.search(word):
            reason = "bytes that are not UTF-8, which a unit file cannot hold"
        if reason:
            raise DeclarationError("argument-unrepresentable", f"argument {number} ({word[:40]!a}) holds {reason}")
