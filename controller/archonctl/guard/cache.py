"""Counts by digest, the least recently used of them dropped first. Pure."""

from __future__ import annotations

from collections import OrderedDict

_ENTRY_BYTES = 256
"""One entry with its key, its number and its share of the table (CPython 3.11: 49 + 32 + 144 bytes, rounded up)."""


class Cache:
    """Digest -> number, in at most ``limit_bytes`` of memory."""

    def __init__(self, limit_bytes: int) -> None:
        self._most = max(1, limit_bytes // _ENTRY_BYTES)
        self._found: OrderedDict[bytes, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._found)

    def get(self, key: bytes) -> int | None:
        """What was put there, or None."""
        number = self._found.get(key)
        if number is not None:
            self._found.move_to_end(key)
        return number

    def put(self, key: bytes, number: int) -> None:
        """Keep a number."""
        self._found[key] = number
        self._found.move_to_end(key)
        if len(self._found) > self._most:
            self._found.popitem(last=False)

    def clear(self) -> None:
        """Keep nothing of it."""
        self._found.clear()
