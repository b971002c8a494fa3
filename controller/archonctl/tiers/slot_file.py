"""The head of a file that llama-server saved: how many tokens it holds.

Layout of b11434: ``llama_context::state_seq_save_file`` (src/llama-context.cpp) writes magic ``ggsq``, a version and a
count of 32-bit words, little endian; the words are ``server_tokens::serialize`` (tools/server/server-common.cpp): -1, a
version, the number of tokens, the tokens. Older servers wrote the plain tokens.
"""

from __future__ import annotations

import struct

MAGIC = 0x67677371
_HEAD = struct.Struct("<III")
_PACKED = struct.Struct("<iII")
HEAD_BYTES = _HEAD.size + _PACKED.size
_PACKED_VERSION = 1


def tokens_in(head: bytes, file_bytes: int) -> int | None:
    """Tokens that the file says it holds; ``None`` if its packing is not known. Raises ValueError for no such file."""
    if len(head) < HEAD_BYTES:
        raise ValueError(f"{len(head)} bytes are no saved slot")
    magic, _version, words = _HEAD.unpack_from(head)
    if magic != MAGIC:
        raise ValueError(f"magic {magic:08x} is not {MAGIC:08x}")
    if _HEAD.size + 4 * words > file_bytes:
        raise ValueError(f"{words:,} words of tokens do not fit {file_bytes:,} bytes")
    mark, version, count = _PACKED.unpack_from(head, _HEAD.size)
    if mark != -1:
        return int(words)
    return int(count) if version == _PACKED_VERSION else None
