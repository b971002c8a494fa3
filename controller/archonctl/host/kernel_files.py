"""Small files of the kernel below a root: text, whole numbers, names; and a note for each that makes no sense."""

from __future__ import annotations

import os
import re
from pathlib import Path

from archonctl.findings import Finding, Place

_LIMIT_BYTES = 1 << 20


class Reader:
    """Reads files below ``root``. Nothing here raises for what a kernel or a fake tree may hold."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.notes: list[str] = []
        """What was there and could not be used, with the file's name."""

    def note(self, path: str, reason: str) -> None:
        """Remember why a figure is unknown."""
        self.notes.append(f"{path}: {reason}")

    def refuse(self, path: str, reason: str) -> None:
        """Remember a figure that makes no sense: it is not used, and the note names the code that explains it."""
        self.notes.append(str(Finding("host-figure-refused", "warning", reason, Place(path))))

    def exists(self, path: str) -> bool:
        """True if the file is there."""
        return os.path.exists(self._at(path))  # noqa: PTH110  False rather than an exception

    def names(self, path: str) -> list[str]:
        """The names in a folder; empty if it cannot be read."""
        try:
            return sorted(os.listdir(self._at(path)))  # noqa: PTH208
        except OSError:
            return []

    def text(self, path: str, wanted: bool = False) -> str | None:
        """The stripped text; None if it cannot be read. ``wanted``: its absence is worth a note."""
        try:
            with self._at(path).open("rb") as file:
                raw = file.read(_LIMIT_BYTES)
        except FileNotFoundError:
            if wanted:
                self.note(path, "not there")
            return None
        except OSError as err:
            self.note(path, err.strerror or "cannot be read")
            return None
        return raw.decode("utf-8", "backslashreplace").strip("\0 \t\r\n")

    def number(self, path: str) -> int | None:
        """A whole number of at most 64 bits; None (and a note) for anything else."""
        text = self.text(path, wanted=True)
        if text is None:
            return None
        if not re.fullmatch(r"[0-9]{1,20}", text, re.ASCII) or int(text) >= 1 << 64:
            self.refuse(path, f"{text[:40]!a} is no whole number of bytes or pages")
            return None
        return int(text)

    def _at(self, path: str) -> Path:
        return self._root / path.lstrip("/")
