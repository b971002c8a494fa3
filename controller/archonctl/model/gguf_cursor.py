"""A position in a file being read: bounded, windowed, and quick over the strings that nobody wants.

The file is read through one sliding window, so that memory stays flat however large the file, and so that it may be
far away.
"""

from __future__ import annotations

import re
from functools import cache
from struct import Struct

from archonctl.errors import ModelError
from archonctl.model.blob import Blob

MAGIC = b"GGUF"
MAX_HEADER_BYTES = 256 * 1024 * 1024
"""A header past this is no model's: the largest vocabularies with merges take some 30 MiB."""
MAX_KEY_BYTES = 65_535
"""The longest key the format allows (docs/gguf.md of ggml)."""
MAX_KEPT_STRING_BYTES = 65_536
MAX_KEPT_STRINGS_BYTES = 8 * 1024 * 1024

_WINDOW_BYTES = 1024 * 1024
_U32 = Struct("<I")
_U64 = Struct("<Q")

# Strings are matched a run at a time inside the regular-expression engine: the pattern below accepts exactly
# _RUN strings that are shorter than _SHORT bytes. The lengths that vocabularies have most are tried first.
_RUN = 64
_SHORT = 136
_RUN_BYTES_MAX = _RUN * (8 + _SHORT - 1)
_RUN_WORTHWHILE = 4096


def hostile(path: str, message: str) -> ModelError:
    """The error for a header that cannot be what a converter wrote."""
    return ModelError("model-header-hostile", message, where=path, hint="the file is damaged: fetch it again")


def truncated(path: str, what: str, need_bytes: int, file_bytes: int) -> ModelError:
    """The error for a file that ends before what its header promises; both figures in bytes."""
    missing = need_bytes - file_bytes
    message = f"{what} reaches at least to byte {need_bytes:,}, the file ends at {file_bytes:,} ({missing:,} missing)"
    return ModelError("model-truncated", message, where=path, hint="finish or repeat the download")


def shown(raw: bytes | str) -> str:
    """A name out of a header, made safe for one line of a message."""
    text = raw.decode("utf-8", "backslashreplace") if isinstance(raw, bytes) else raw
    return repr(text if len(text) <= 80 else text[:77] + "...")


class Cursor:
    """A position in a file and the window of bytes around it."""

    __slots__ = ("_base", "_blob", "_kept_bytes", "data", "path", "pos", "size")

    def __init__(self, blob: Blob) -> None:
        self._blob = blob
        self.path = blob.path
        self.size = blob.size
        self.pos = 0
        self.data = b""
        self._base = 0
        self._kept_bytes = 0

    def require(self, count: int, what: str) -> None:
        """Refuse if fewer than ``count`` bytes are left in the file."""
        if count > self.size - self.pos:
            raise truncated(self.path, what, self.pos + count, self.size)

    def ensure(self, count: int) -> int:
        """Index in ``data`` where the next ``count`` bytes stand (``pos`` does not move)."""
        start = self.pos - self._base
        if start + count <= len(self.data):
            return start
        self.require(count, "the header")
        if self.pos + count > MAX_HEADER_BYTES:
            message = f"the header runs past {self.pos + count:,} bytes; the limit is {MAX_HEADER_BYTES:,}"
            raise hostile(self.path, message)
        want = min(max(count, _WINDOW_BYTES), self.size - self.pos)
        self.data = self._blob.read(want, self.pos)
        self._base = self.pos
        if len(self.data) < count:
            raise truncated(self.path, "the header", self.pos + count, self.pos + len(self.data))
        return 0

    def u32(self) -> int:
        start = self.ensure(4)
        self.pos += 4
        return int(_U32.unpack_from(self.data, start)[0])

    def u64(self) -> int:
        start = self.ensure(8)
        self.pos += 8
        return int(_U64.unpack_from(self.data, start)[0])

    def expect_magic(self) -> None:
        start = self.ensure(4)
        if self.data[start : start + 4] != MAGIC:
            raise hostile(self.path, f"the first bytes are {self.data[start : start + 4]!r}, not b'GGUF'")
        self.pos += 4

    def length(self, what: str) -> int:
        """A string's length, checked against the bytes that are left."""
        count = self.u64()
        if count > MAX_HEADER_BYTES:
            raise hostile(self.path, f"{what} claims {count:,} bytes; the limit is {MAX_HEADER_BYTES:,}")
        self.require(count, what)
        return count

    def key(self) -> str:
        count = self.length("a key")
        if not 0 < count <= MAX_KEY_BYTES:
            raise hostile(self.path, f"a key is {count:,} bytes long; the format allows 1 to {MAX_KEY_BYTES:,}")
        start = self.ensure(count)
        self.pos += count
        raw = self.data[start : start + count]
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            raise hostile(self.path, f"key {shown(raw)} is not UTF-8") from None

    def string(self, what: str) -> str | None:
        """A string value; None where it is too long to be worth keeping (chat templates, licences)."""
        count = self.length(what)
        if count > MAX_KEPT_STRING_BYTES or self._kept_bytes + count > MAX_KEPT_STRINGS_BYTES:
            self.pos += count
            return None
        self._kept_bytes += count
        start = self.ensure(count)
        self.pos += count
        return self.data[start : start + count].decode("utf-8", "replace")

    def skip_strings(self, count: int) -> None:
        """Step over ``count`` length-prefixed strings."""
        run = _run_pattern() if count >= _RUN_WORTHWHILE else None
        while count:
            if run is not None and count >= _RUN:
                start = self.ensure(min(_RUN_BYTES_MAX, self.size - self.pos))
                if found := run.match(self.data, start):
                    self.pos += found.end() - start
                    count -= _RUN
                    continue
            few = min(count, _RUN)
            self._step_strings(few)
            count -= few

    def _step_strings(self, count: int) -> None:
        """One string after the other: for long strings, and for what is left of a run."""
        unpack, size = _U64.unpack_from, self.size
        for _ in range(count):
            start = self.ensure(8)
            (length,) = unpack(self.data, start)
            if length > size - self.pos - 8:
                self.length("a string in an array")  # raises, with the right one of two errors
            self.pos += 8 + length


@cache
def _run_pattern() -> re.Pattern[bytes]:
    """Exactly ``_RUN`` short strings in a row; compiled once, and only if a file has a vocabulary."""
    lengths = sorted(range(_SHORT), key=lambda length: abs(length - 7))
    one = b"|".join(re.escape(_U64.pack(n)) + (b".{%d}" % n if n else b"") for n in lengths)
    return re.compile(b"(?s)(?:%b){%d}+" % (one, _RUN))
