"""What a reader of a model's file needs of it, wherever it lies."""

from __future__ import annotations

from typing import Protocol


class Blob(Protocol):
    """One open file: its name for messages, its size in bytes, and bytes by position."""

    @property
    def path(self) -> str:
        """The name for messages."""
        ...

    @property
    def size(self) -> int:
        """Bytes in all."""
        ...

    def read(self, count: int, position: int) -> bytes:
        """Up to ``count`` bytes; fewer only at the end of the file."""
        ...
