"""Content codings that a proxy may put on an answer although none was accepted, unpacked in bounded pieces."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

_PIECE = 64 * 1024
_GZIP_OR_ZLIB, _RAW = zlib.MAX_WBITS | 32, -zlib.MAX_WBITS
_GZIP_HEAD = b"\x1f\x8b"
KNOWN = frozenset({"gzip", "x-gzip", "deflate"})
"""Names of RFC 9110, 8.4.1, that the standard library unpacks. ``deflate`` comes with and without its zlib head."""


class Unpacker:
    """Packed bytes in, unpacked pieces of at most 64 KiB out: a bomb goes off piece by piece, and whoever counts the
    pieces may stop at any."""

    def __init__(self, coding: str) -> None:
        self._engine = zlib.decompressobj(_GZIP_OR_ZLIB)
        self._may_be_raw = coding == "deflate"
        self._head = b""

    @property
    def ended(self) -> bool:
        """True once the packed bytes said that they were all."""
        return self._engine.eof

    def feed(self, block: bytes) -> Iterator[bytes]:
        """What ``block`` unpacks to. Raises ValueError for bytes that are not packed so."""
        left = self._from_the_head(block)
        while left:
            try:
                piece = self._engine.decompress(left, _PIECE)
            except zlib.error as err:
                raise ValueError(str(err)) from None
            if piece:
                yield piece
            left = self._engine.unconsumed_tail
            if self._engine.eof:
                left = self._engine.unused_data
                if not left.startswith(_GZIP_HEAD):
                    return  # what follows the last member is padding (RFC 1952, 2.2)
                self._engine = zlib.decompressobj(_GZIP_OR_ZLIB)

    def _from_the_head(self, block: bytes) -> bytes:
        """The block, once two bytes are there that tell whether a zlib head (RFC 1950, 2.2) comes first."""
        if not self._may_be_raw:
            return block
        self._head += block
        if len(self._head) < 2:
            return b""
        method, check = self._head[0] & 0x0F, int.from_bytes(self._head[:2], "big") % 31
        if (method, check) != (8, 0) and not self._head.startswith(_GZIP_HEAD):
            self._engine = zlib.decompressobj(_RAW)
        self._may_be_raw, block, self._head = False, self._head, b""
        return block
