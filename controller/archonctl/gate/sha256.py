"""SHA-256 whose state can be written down, so that a long read goes on where it stopped.

hashlib cannot store its state; libcrypto, which hashlib itself uses, keeps it in a plain struct (``SHA256_CTX`` of
openssl/sha.h: 8 words of state, 2 of length, 16 of data, 2 counters). Where that library is not there, or does not
give the known answer, hashlib is used, and nothing can be resumed.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import hashlib
import sys
from functools import cache

STATE_BYTES = 112
_ABC = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


class Hasher:
    """A SHA-256 in progress. ``state`` is None where it cannot be stored."""

    def __init__(self, state: bytes | None = None) -> None:
        self._library = library()
        self._plain = None if self._library else hashlib.sha256()
        self._state = ctypes.create_string_buffer(STATE_BYTES + 16)
        if self._library and state is not None:
            ctypes.memmove(self._state, state, STATE_BYTES)
        elif self._library:
            self._library.SHA256_Init(self._state)

    @property
    def state(self) -> bytes | None:
        """What a later ``Hasher`` goes on from."""
        return self._state.raw[:STATE_BYTES] if self._library else None

    def update(self, data: bytes) -> None:
        """More of the file."""
        if self._plain is not None:
            self._plain.update(data)
        elif self._library:
            self._library.SHA256_Update(self._state, data, len(data))

    def hexdigest(self) -> str:
        """The digest; nothing can be added afterwards."""
        if self._plain is not None:
            return self._plain.hexdigest()
        out = ctypes.create_string_buffer(32)
        if self._library:
            self._library.SHA256_Final(out, self._state)
        return out.raw.hex()


@cache
def library() -> ctypes.CDLL | None:
    """libcrypto, if it has the functions and gives the digest of FIPS 180-4's example."""
    name = ctypes.util.find_library("crypto") if sys.platform != "win32" else None
    try:
        found = ctypes.CDLL(name or "libcrypto.so.3")
        found.SHA256_Update.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t)
        found.SHA256_Init.argtypes = (ctypes.c_void_p,)
        found.SHA256_Final.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
    except (OSError, AttributeError):
        return None
    state, out = ctypes.create_string_buffer(STATE_BYTES + 16), ctypes.create_string_buffer(32)
    found.SHA256_Init(state)
    found.SHA256_Update(state, b"abc", 3)
    found.SHA256_Final(out, state)
    return found if out.raw.hex() == _ABC else None
