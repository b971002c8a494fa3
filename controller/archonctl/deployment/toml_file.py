"""A small TOML file that people write: read within bounds, refused in one sentence."""

from __future__ import annotations

import os
import re
import stat
import tomllib
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

from archonctl.deployment.problems import printable
from archonctl.deployment.toml_lines import Loc, key_lines, line_of
from archonctl.errors import DeclarationError

SIZE_LIMIT_BYTES = 1 << 20
"""A declaration is a page of text; a model file named by mistake is not read into memory."""

_PART = r"""(?:[A-Za-z0-9_-]+|"[^"\n]*"|'[^'\n]*')"""
_DEEP_KEY = re.compile(rf"(?<![A-Za-z0-9_.-])(?:{_PART}[ \t]*\.[ \t]*){{32}}")
"""tomllib keeps every prefix of a dotted key: a key of 300,000 parts would cost tens of GiB."""


@dataclass(frozen=True)
class TomlFile:
    """The parsed file; ``shown`` is its name for messages, ``what`` the kind of file in words."""

    path: Path
    shown: str
    what: str
    text: str
    data: dict[str, object]

    @cached_property
    def lines(self) -> dict[Loc, int]:
        """Line of every key; worked out when it is first asked for."""
        return key_lines(self.text)

    def place(self, loc: Loc) -> str:
        """``env/tiny.toml:12`` for a key, else the line of the table around it, else the file."""
        line = line_of(self.lines, loc)
        return f"{self.shown}:{line}" if line else self.shown


def read_toml(path: Path, what: str) -> TomlFile:
    """Read a TOML file of at most 1 MiB.

    ``what`` names its kind in messages ("endpoint declaration"). Raises DeclarationError
    ``declaration-not-found``, ``-unreadable``, ``-too-large``, ``-empty``, ``-not-utf8`` or ``-invalid-toml``.
    """
    shown = printable(os.fspath(path), 4096)
    text = _decode(_read(path, what, shown), what, shown)
    if found := _DEEP_KEY.search(text):
        raise _invalid(what, f"{shown}:{text.count(chr(10), 0, found.start()) + 1}", "a key with more than 32 parts")
    try:
        data = _parsed(text)
    except tomllib.TOMLDecodeError as err:
        line = re.search(r"at line ([0-9]+)", str(err))
        where = f"{shown}:{line[1] if line else text.rstrip().count(chr(10)) + 1}"
        raise _invalid(what, where, printable(str(err), 200)) from None
    except ValueError as err:  # a number of thousands of digits, a date that does not exist
        raise _invalid(what, shown, printable(str(err).partition(";")[0], 200)) from None
    except RecursionError:
        raise _invalid(what, shown, "arrays or tables nested too deeply") from None
    return TomlFile(path, shown, what, text, data)


@lru_cache(maxsize=32)
def _parsed(text: str) -> dict[str, object]:
    """The same text parsed once: many declarations share a host profile and a manifest. Nobody changes the value."""
    return tomllib.loads(text)


def _read(path: Path, what: str, shown: str) -> bytes:
    try:
        # O_NONBLOCK: a pipe named by mistake must not hang the program
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        raise DeclarationError("declaration-not-found", f"there is no such {what}", where=shown) from None
    except (OSError, ValueError) as err:
        reason = getattr(err, "strerror", None) or str(err)
        raise DeclarationError("declaration-unreadable", f"cannot read the {what}: {reason}", where=shown) from None
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            kind = "a directory" if stat.S_ISDIR(found.st_mode) else "not a regular file"
            raise DeclarationError("declaration-unreadable", f"expected the {what}, this is {kind}", where=shown)
        with open(handle, "rb", closefd=False) as file:
            raw = file.read(SIZE_LIMIT_BYTES + 1)
    except OSError as err:
        raise DeclarationError(
            "declaration-unreadable", f"cannot read the {what}: {err.strerror}", where=shown
        ) from None
    finally:
        os.close(handle)
    if len(raw) > SIZE_LIMIT_BYTES:
        message = f"{max(found.st_size, len(raw)):,} bytes, the {what} has at most {SIZE_LIMIT_BYTES:,}"
        raise DeclarationError("declaration-too-large", message, where=shown, hint="is this the right file?")
    return raw


def _decode(raw: bytes, what: str, shown: str) -> str:
    if not raw.strip():
        raise DeclarationError("declaration-empty", f"the {what} is empty", where=shown)
    if raw.startswith((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")):
        hint = "save it as UTF-8 without a byte-order mark"
        raise _invalid(what, f"{shown}:1", "it begins with a byte-order mark", hint)
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as err:
        line = raw.count(b"\n", 0, err.start) + 1
        message = f"byte 0x{raw[err.start]:02x} is not UTF-8: the {what} is UTF-8 text"
        raise DeclarationError("declaration-not-utf8", message, where=f"{shown}:{line}") from None


def _invalid(what: str, where: str, reason: str, hint: str = "") -> DeclarationError:
    return DeclarationError(
        "declaration-invalid-toml", f"the {what} is not valid TOML: {reason}", where=where, hint=hint
    )
