"""The access log: a line of figures a request, never a body, a query or a key; and never a wait for who reads it."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

_PATH_CHARS = 120
_LINES = 10_000
_EVERY_S = 0.2


@dataclass
class Line:
    """One request; filled in as it goes."""

    method: str
    path: str
    client: str = "-"
    status: int = 0
    code: str = ""
    """Of a refusal."""
    tokens: str = ""
    """Prompt and longest answer as admitted: ``269+8``, ``<=269+8``, ``?+8``."""
    queued_s: float | None = None
    first_s: float | None = None
    total_s: float = 0.0
    in_bytes: int = 0
    out_bytes: int = 0
    end: str = "passed"
    """How it ended: passed, retried, refused, client-gone, engine-lost, fault."""

    def text(self) -> str:
        """The line; what a client chose is printable, and short."""
        path = "".join(char if "!" <= char <= "~" else "?" for char in self.path[:_PATH_CHARS])
        words = [self.method[:16], path, str(self.status or "-"), f"client={self.client}", f"end={self.end}"]
        words += [f"code={self.code}"] if self.code else []
        words += [f"tokens={self.tokens}"] if self.tokens else []
        for name, value in (("queued", self.queued_s), ("first", self.first_s), ("total", self.total_s)):
            words += [f"{name}_ms={value * 1000:.1f}"] if value is not None else []
        return " ".join([*words, f"in={self.in_bytes}", f"out={self.out_bytes}"])


def unread_line(peer: str, status: int, code: str) -> Line:
    """A request of which not even the head could be read."""
    return Line("-", "-", f"from-{peer}", status, code, end="refused")


class AccessLog:
    """Writes lines from a thread of its own. A context. Where nobody takes them, they are dropped and counted."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._lines: deque[str] = deque()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="access-log", daemon=True)
        self.dropped = 0

    def __enter__(self) -> AccessLog:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._ended.set()
        self._thread.join(2.0)

    def put(self, text: str) -> None:
        """Log a line; never waits, and wakes nobody: that would cost each request a change of threads."""
        if len(self._lines) < _LINES:
            self._lines.append(text)
        else:
            self.dropped += 1

    def _run(self) -> None:
        while not self._ended.wait(_EVERY_S):
            self._flush()
        self._flush()

    def _flush(self) -> None:
        while self._lines:
            self._write(self._lines.popleft())
        if self.dropped:
            missing, self.dropped = self.dropped, 0
            self._write(f"{missing} lines were dropped: the log was not taken in time")
