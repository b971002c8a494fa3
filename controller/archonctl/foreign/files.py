"""Reading a file that somebody else wrote: within bounds, regular files only, as text."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from archonctl.errors import UsageError

SIZE_LIMIT_BYTES = 1 << 20
"""Units, scripts and compose files are pages of text; a model named by mistake is not read into memory."""


def read_text(path: Path) -> str:
    """The text of a file of at most 1 MiB, a byte-order mark left out.

    Raises UsageError ``foreign-file-unreadable``, ``foreign-file-too-large`` or ``foreign-file-not-text``.
    """
    shown = os.fspath(path)
    try:
        # O_NONBLOCK: a pipe named by mistake must not hang the program
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as err:
        raise _unreadable(shown, getattr(err, "strerror", None) or str(err)) from None
    with os.fdopen(handle, "rb") as file:
        try:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise _unreadable(shown, "not a regular file")
            raw = file.read(SIZE_LIMIT_BYTES + 1)
        except OSError as err:
            raise _unreadable(shown, err.strerror or str(err)) from None
    if len(raw) > SIZE_LIMIT_BYTES:
        message = f"more than {SIZE_LIMIT_BYTES:,} bytes, a unit, script or compose file has less"
        raise UsageError("foreign-file-too-large", message, where=shown, hint="is this the right file?")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as err:
        line = raw.count(b"\n", 0, err.start) + 1
        message = f"byte 0x{raw[err.start]:02x} is not UTF-8"
        raise UsageError("foreign-file-not-text", message, where=f"{shown}:{line}") from None
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise UsageError("foreign-file-not-text", "it holds a NUL character", where=f"{shown}:{line}")
    return text


def _unreadable(shown: str, reason: str) -> UsageError:
    return UsageError("foreign-file-unreadable", f"cannot read it: {reason}", where=shown)
