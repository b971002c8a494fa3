"""Env files in the one form that every reader of env files reads the same.

systemd's ``EnvironmentFile=``, ``docker``/``podman --env-file``, a shell's ``source`` and dotenv libraries agree on
little: quotes stay in the value for one and vanish for another, a backslash is an escape or is not, ``$`` and ``~``
expand in a shell, ``#`` begins a comment in some places. What they agree on is ``NAME=value`` with plain ASCII
characters that mean themselves everywhere, so that is what is written, and anything else is refused.

Sources: systemd.exec(5) "EnvironmentFile=", docker run(1) "--env-file", POSIX.1-2024 XCU 2.2 and 2.6, bash(1)
"Shell Variables".
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from archonctl.errors import DeclarationError

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_VALUE = re.compile(r"[A-Za-z0-9_@%+=:,./-]*", re.ASCII)
_COMMENT = re.compile(r"#[ -\[\]-~]*", re.ASCII)
"""Printable ASCII without the backslash, which continues a comment on the next line for systemd."""

# read-only, or set by the shell itself at every step: sourcing the file would fail or change nothing
_OWNED = """
    _ BASH BASHOPTS BASHPID BASH_ALIASES BASH_ARGC BASH_ARGV BASH_ARGV0 BASH_CMDS BASH_COMMAND BASH_LINENO
    BASH_MONOSECONDS BASH_REMATCH BASH_SOURCE BASH_SUBSHELL BASH_VERSINFO BASH_VERSION COMP_WORDBREAKS DIRSTACK
    EPOCHREALTIME EPOCHSECONDS EUID FUNCNAME GROUPS HISTCMD IFS LINENO OLDPWD OPTIND PIPESTATUS POSIXLY_CORRECT
    PPID PWD RANDOM SECONDS SHELLOPTS SHLVL SRANDOM UID
"""
SHELL_OWNED = frozenset(_OWNED.split())
"""Variables that a shell owns: another reader would take the value, a shell would not."""

HEADER = "# Rendered by archonctl from the declaration. Change the declaration, not this file."


def why_unrepresentable(name: str, value: str) -> str:
    """Why ``NAME=value`` would not be read the same everywhere; an empty string if it would."""
    if not _NAME.fullmatch(name):
        return f"{name[:40]!a} is no variable name (letters, digits and underscore, no digit first)"
    if name in SHELL_OWNED:
        return "a shell sets this variable itself"
    if _VALUE.fullmatch(value):
        return ""
    bad = re.sub(_VALUE, "", value)[:1]
    return f"the value holds {bad!a} at position {value.index(bad) + 1}, which env file readers do not agree on"


def write_env(variables: Mapping[str, str]) -> str:
    """The text of an env file, sorted by name.

    Raises DeclarationError ``env-value-unrepresentable`` with the variable and the reason.
    """
    lines = [HEADER]
    for name in sorted(variables):
        if reason := why_unrepresentable(name, variables[name]):
            raise DeclarationError(
                "env-value-unrepresentable",
                f"engine.env.{name}: {reason}" if _NAME.fullmatch(name) else reason,
                hint="values are made of letters, digits and _ @ % + = : , . / -",
            )
        lines.append(f"{name}={variables[name]}")
    return "\n".join(lines) + "\n"


def parse_env(text: str, where: str = "env file") -> dict[str, str]:
    """The variables of an env file in this form.

    ``where`` names the file in messages. Raises DeclarationError ``env-line-invalid`` with the line.
    """
    found: dict[str, str] = {}
    if text and not text.endswith("\n"):
        raise _invalid(where, text.count("\n") + 1, "the last line is not ended: the file may be cut short")
    for number, line in enumerate(text.split("\n")[:-1], 1):
        if not line or _COMMENT.fullmatch(line):
            continue
        name, equals, value = line.partition("=")
        if not equals:
            raise _invalid(where, number, f"{line[:60]!a} is neither NAME=value nor a comment")
        if reason := why_unrepresentable(name, value):
            raise _invalid(where, number, reason)
        if name in found:
            raise _invalid(where, number, f"{name} is set a second time")
        found[name] = value
    return found


def _invalid(where: str, line: int, reason: str) -> DeclarationError:
    return DeclarationError("env-line-invalid", reason, where=f"{where}:{line}")
