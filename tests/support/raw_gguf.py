"""GGUF bytes by hand, right or wrong on purpose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from struct import pack

U8, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64 = 0, 4, 5, 6, 7, 8, 9, 10, 11
_CODES = {U8: "B", U32: "I", I32: "i", F32: "f", BOOL: "?", U64: "Q", I64: "q"}

Value = int | float | bool | str | Sequence[int] | Sequence[bool] | Sequence[str]


def text(value: str | bytes) -> bytes:
    """A length-prefixed string."""
    raw = value.encode() if isinstance(value, str) else value
    return pack("<Q", len(raw)) + raw


def pair(key: str | bytes, value: Value) -> bytes:
    """A key with its value; whole numbers as u32 where they fit, else as i64 or u64."""
    return text(key) + _value(value)


def array(key: str, kind: int, values: Sequence[int | float | bool]) -> bytes:
    """A key with an array of numbers or booleans of one kind."""
    return text(key) + pack(f"<IIQ{len(values)}{_CODES[kind]}", ARRAY, kind, len(values), *values)


def _value(value: Value) -> bytes:
    if isinstance(value, str):
        return pack("<I", STRING) + text(value)
    if isinstance(value, float):
        return pack("<If", F32, value)
    if isinstance(value, int):
        kind = BOOL if isinstance(value, bool) else U32 if 0 <= value < 2**32 else U64 if value > 0 else I64
        return pack("<I" + _CODES[kind], kind, value)
    if value and isinstance(value[0], str):
        return pack("<IIQ", ARRAY, STRING, len(value)) + b"".join(text(str(v)) for v in value)
    kind = BOOL if value and isinstance(value[0], bool) else I32
    return pack(f"<IIQ{len(value)}{_CODES[kind]}", ARRAY, kind, len(value), *value)


def tensor(name: str | bytes, dims: Sequence[int], type_id: int = 0, offset: int = 0) -> bytes:
    """One entry of the tensor list."""
    return text(name) + pack(f"<I{len(dims)}QIQ", len(dims), *dims, type_id, offset)


def document(
    pairs: Sequence[bytes],
    tensors: Sequence[bytes],
    *,
    version: int = 3,
    pair_count: int | None = None,
    tensor_count: int | None = None,
    data_bytes: int = 128,
    alignment: int = 32,
) -> bytes:
    """A whole file; the counts may lie."""
    counts = pack(
        "<QQ",
        len(tensors) if tensor_count is None else tensor_count,
        len(pairs) if pair_count is None else pair_count,
    )
    head = b"GGUF" + pack("<I", version) + counts + b"".join(pairs) + b"".join(tensors)
    return head + bytes(-len(head) % alignment) + bytes(data_bytes)


LLAMA: dict[str, Value] = {
    "general.architecture": "llama",
    "llama.block_count": 2,
    "llama.context_length": 4096,
    "llama.embedding_length": 64,
    "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": 2,
}


def write_model(path: Path, keys: Mapping[str, Value], *more: bytes) -> Path:
    """A model with these keys (and ``more`` pairs) and one tensor of 128 bytes."""
    pairs = [pair(key, value) for key, value in keys.items()] + list(more)
    path.write_bytes(document(pairs, [tensor("blk.0.attn_q.weight", (8, 4))]))
    return path


def write_arch(path: Path, arch: str, keys: Mapping[str, Value], *more: bytes) -> Path:
    """As ``write_model``, for keys of one architecture; four layers of 4 heads and 2 KV heads unless told otherwise."""
    base: dict[str, Value] = {
        "block_count": 4,
        "context_length": 4096,
        "embedding_length": 64,
        "attention.head_count": 4,
        "attention.head_count_kv": 2,
        **keys,
    }
    return write_model(path, {"general.architecture": arch, **{f"{arch}.{k}": v for k, v in base.items()}}, *more)
