"""Reading a log that is being written: whole lines, bounded in time and memory, whatever the writer does."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

LINE_LIMIT_BYTES = 64 * 1024
READ_BYTES = 1024 * 1024
BACKLOG_BYTES = 32 * 1024 * 1024


class LogSource(Protocol):
    """Something that yields the log's new lines."""

    @property
    def seen_bytes(self) -> int:
        """How much the engine is known to have written; grows while it writes."""
        ...

    @property
    def skipped_bytes(self) -> int:
        """How much was passed over because the engine wrote faster than it could be read."""
        ...

    def read(self) -> Sequence[str]:
        """The whole lines that are new, at most a bounded number; empty if there are none. Never blocks."""
        ...

    def rest(self) -> str:
        """The unfinished last line, if any."""
        ...

    def expect(self) -> None:
        """Find out how much has been written up to now; may take a moment."""
        ...

    @property
    def behind(self) -> bool:
        """True while less has been read than the last ``expect`` found."""
        ...

    def skip_to_end(self) -> None:
        """Pass over a backlog, so that the next ``read`` gives the last lines."""
        ...


@dataclass
class LineSplitter:
    """Cuts bytes into lines at newline or carriage return (progress bars); overlong lines are cut, not kept.

    Bytes that are not UTF-8 are shown as replacement characters.
    """

    limit: int = LINE_LIMIT_BYTES
    pending: bytes = b""
    _cutting: bool = False

    def feed(self, data: bytes) -> list[str]:
        """The lines that ``data`` completes; empty lines are dropped."""
        parts = (self.pending + data).replace(b"\r", b"\n").split(b"\n")
        self.pending = parts.pop()
        if self._cutting and parts:
            parts.pop(0)  # the rest of a line whose beginning was already given out
            self._cutting = False
        lines = [part[: self.limit].decode("utf-8", "replace") for part in parts if part.strip()]
        if len(self.pending) > self.limit:
            if not self._cutting:
                lines.append(self.pending[: self.limit].decode("utf-8", "replace"))
            self._cutting, self.pending = True, b""
        return lines

    def rest(self) -> str:
        """The unfinished line."""
        return "" if self._cutting else self.pending.decode("utf-8", "replace")


@dataclass
class FileTail:
    """A ``LogSource`` over a file that one process appends to and another may cut short.

    A backlog over ``backlog`` bytes is skipped: nobody waits for the reading of a flood. What is in the head
    of the file stays there for a later reader.
    """

    path: Path
    backlog: int = BACKLOG_BYTES
    skipped_bytes: int = 0
    seen_bytes: int = 0
    _offset: int = 0
    _skip: bool = False
    _expected: int = 0
    _split: LineSplitter = field(default_factory=LineSplitter)

    def read(self) -> list[str]:
        """See ``LogSource``; up to 1 MiB a call. A file that is not there yet has no lines."""
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return []
        try:
            size = os.fstat(fd).st_size
            if size < self._offset:  # cut by the guard: go on at the new end of what is kept
                self._jump(size)
            elif size - self._offset > (READ_BYTES if self._skip else self.backlog):
                self.skipped_bytes += size - self._offset - READ_BYTES
                self.seen_bytes += size - self._offset - READ_BYTES
                self._jump(size - READ_BYTES)
            self._skip = False
            data = os.pread(fd, READ_BYTES, self._offset)
        finally:
            os.close(fd)
        self._offset += len(data)
        self.seen_bytes += len(data)
        return self._split.feed(data)

    def _jump(self, offset: int) -> None:
        self._offset = offset
        self._expected = min(self._expected, offset)
        self._split = LineSplitter(self._split.limit)

    def rest(self) -> str:
        """See ``LogSource``."""
        return self._split.rest()

    def expect(self) -> None:
        """See ``LogSource``."""
        with contextlib.suppress(FileNotFoundError):
            self._expected = self.path.stat().st_size

    @property
    def behind(self) -> bool:
        """See ``LogSource``."""
        return self._offset < self._expected

    def skip_to_end(self) -> None:
        """See ``LogSource``."""
        self._skip = True
