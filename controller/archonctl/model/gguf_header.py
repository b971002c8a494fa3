"""The bytes of a GGUF header: key-value pairs and tensor list, read without building what nobody asks for.

Layout: docs/gguf.md of ggml; what a loader refuses: llama.cpp b11434 ggml/src/gguf.cpp. Vocabulary, merges and
scores are walked, never materialised: only their lengths stay.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from math import isfinite
from struct import Struct
from typing import NamedTuple

from archonctl.errors import ModelError
from archonctl.model.blob import Blob
from archonctl.model.gguf_cursor import MAX_HEADER_BYTES, Cursor, hostile, shown, truncated

VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32
MAX_PAIRS = 65_536
MAX_TENSORS = 131_072
MAX_NAME_BYTES = 63
"""GGML_MAX_NAME - 1 (ggml/include/ggml.h)."""
MAX_DIMS = 4
"""GGML_MAX_DIMS (ggml/include/ggml.h)."""
MAX_KEPT_ARRAY = 512
"""Integer arrays up to LLAMA_MAX_LAYERS (src/llama-hparams.h) are kept: they are per-layer figures."""

_U32 = Struct("<I")
_U64 = Struct("<Q")
_BOOL, _STRING, _ARRAY = 7, 8, 9
_FORMATS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "B", 10: "Q", 11: "q", 12: "d"}
_SCALARS = {kind: Struct("<" + code) for kind, code in _FORMATS.items()}
_DIMS = tuple(Struct("<" + "Q" * n + "IQ") for n in range(MAX_DIMS + 1))
_TENSOR_BYTES_MIN = 8 + 4 + 4 + 8
_TENSOR_BYTES_MAX = 8 + MAX_NAME_BYTES + 4 + 8 * MAX_DIMS + 4 + 8
_PAIR_BYTES_MIN = 8 + 1 + 4 + 1

Scalar = int | float | str | bool


class TensorInfo(NamedTuple):
    """One tensor as the header lists it. ``type_id`` is the ggml type, ``dims`` are in ggml order (ne0 first)."""

    name: str
    type_id: int
    dims: tuple[int, ...]
    offset: int


@dataclass(slots=True)
class Header:
    """What one GGUF file says before its data. ``data_start`` and ``file_bytes`` are byte positions in the file."""

    path: str
    version: int
    file_bytes: int
    scalars: dict[str, Scalar] = field(default_factory=dict)
    arrays: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Integer and boolean arrays of at most MAX_KEPT_ARRAY elements."""
    array_lengths: dict[str, int] = field(default_factory=dict)
    """Elements of every array, kept or not."""
    tensors: list[TensorInfo] = field(default_factory=list)
    data_start: int = 0
    alignment: int = DEFAULT_ALIGNMENT


def read_header(blob: Blob) -> Header:
    """Read the header of an open file.

    Raises ModelError: ``model-version-unsupported``, ``model-truncated`` or ``model-header-hostile``.
    """
    cursor = Cursor(blob)
    cursor.expect_magic()
    header = Header(blob.path, _version(cursor), cursor.size)
    tensors, pairs = cursor.u64(), cursor.u64()
    _bounded(cursor, "tensors", tensors, MAX_TENSORS)
    _bounded(cursor, "key-value pairs", pairs, MAX_PAIRS)
    cursor.require(tensors * _TENSOR_BYTES_MIN + pairs * _PAIR_BYTES_MIN, "the header")
    for _ in range(pairs):
        _read_pair(cursor, header)
    header.alignment = _alignment(header)
    _read_tensors(cursor, header, tensors)
    step = header.alignment
    header.data_start = -(-cursor.pos // step) * step
    return header


def _version(cursor: Cursor) -> int:
    version = cursor.u32()
    if version in VERSIONS:
        return version
    if version & 0xFFFF == 0 and version:
        said = f"a big-endian GGUF (version {int.from_bytes(version.to_bytes(4, 'little'), 'big')})"
    else:
        said = f"GGUF version {version}"
    raise ModelError(
        "model-version-unsupported",
        f"{said}; this release reads little-endian versions 2 and 3",
        where=cursor.path,
        hint="convert the model again with a current llama.cpp",
    )


def _bounded(cursor: Cursor, what: str, count: int, limit: int) -> None:
    if count > limit:
        raise hostile(cursor.path, f"the header claims {count:,} {what}; the limit is {limit:,}")


def _read_pair(cursor: Cursor, header: Header) -> None:
    key = cursor.key()
    if key in header.scalars or key in header.array_lengths:
        raise hostile(cursor.path, f"key {shown(key)} stands twice in the header")
    kind = cursor.u32()
    if kind == _STRING:
        # A string that is not kept still stands for its key, so that a second one is noticed.
        text = cursor.string(f"the value of {shown(key)}")
        if text is None:
            header.array_lengths[key] = 0
        else:
            header.scalars[key] = text
    elif kind == _ARRAY:
        header.array_lengths[key] = _read_array(cursor, header, key)
    elif kind in _SCALARS:
        header.scalars[key] = _scalar(cursor, kind)
    else:
        raise hostile(cursor.path, f"key {shown(key)} has value type {kind}; the format has 0 to 12")


def _scalar(cursor: Cursor, kind: int) -> Scalar:
    """A number or boolean; NaN and infinities as text, because JSON has none and no arithmetic should meet one."""
    packed = _SCALARS[kind]
    start = cursor.ensure(packed.size)
    cursor.pos += packed.size
    value: int | float = packed.unpack_from(cursor.data, start)[0]
    if kind == _BOOL:
        return bool(value)
    return value if isfinite(value) else str(value)


def _read_array(cursor: Cursor, header: Header, key: str) -> int:
    kind, count = cursor.u32(), cursor.u64()
    what = f"the array {shown(key)}"
    if kind == _STRING:
        if count * 8 > MAX_HEADER_BYTES:
            raise hostile(cursor.path, f"{what} claims {count:,} strings; the limit is {MAX_HEADER_BYTES // 8:,}")
        cursor.require(count * 8, what)
        cursor.skip_strings(count)
        return count
    packed = _SCALARS.get(kind)
    if packed is None:
        said = "holds arrays" if kind == _ARRAY else f"has element type {kind}"
        raise hostile(cursor.path, f"{what} {said}; the format allows numbers, booleans and strings")
    size = packed.size * count
    if size > MAX_HEADER_BYTES:
        raise hostile(
            cursor.path, f"{what} claims {count:,} elements ({size:,} bytes); the limit is {MAX_HEADER_BYTES:,}"
        )
    cursor.require(size, what)
    if count <= MAX_KEPT_ARRAY and _FORMATS[kind] not in "fd":
        start = cursor.ensure(size)
        values = struct.unpack_from(f"<{count}{_FORMATS[kind]}", cursor.data, start)
        header.arrays[key] = tuple(int(v != 0) for v in values) if kind == _BOOL else values
    cursor.pos += size
    return count


def _alignment(header: Header) -> int:
    step = header.scalars.get("general.alignment", DEFAULT_ALIGNMENT)
    if isinstance(step, bool) or not isinstance(step, int) or step <= 0 or step & (step - 1):
        raise hostile(header.path, f"general.alignment is {step!r}, not a power of two")
    return step


def _read_tensors(cursor: Cursor, header: Header, count: int) -> None:
    """The tensor list. One look at the window a tensor: models with experts have thousands."""
    seen: set[bytes] = set()
    u32, u64, dims_of = _U32.unpack_from, _U64.unpack_from, _DIMS
    for _ in range(count):
        at = start = cursor.ensure(min(_TENSOR_BYTES_MAX, cursor.size - cursor.pos))
        data = cursor.data
        try:
            (length,) = u64(data, at)
            at += 8 + length
            if length > MAX_NAME_BYTES:
                raise hostile(cursor.path, f"a tensor name is {length:,} bytes long; the limit is {MAX_NAME_BYTES}")
            name = data[start + 8 : at]
            (n_dims,) = u32(data, at)
            if n_dims > MAX_DIMS:
                raise hostile(cursor.path, f"tensor {shown(name)} has {n_dims:,} dimensions; the limit is {MAX_DIMS}")
            layout = dims_of[n_dims]
            *dims, type_id, offset = layout.unpack_from(data, at + 4)
        except struct.error:
            raise truncated(cursor.path, "the tensor list", cursor.size + 1, cursor.size) from None
        if name in seen:
            raise hostile(cursor.path, f"tensor {shown(name)} stands twice in the header")
        seen.add(name)
        header.tensors.append(TensorInfo(name.decode("utf-8", "backslashreplace"), type_id, tuple(dims), offset))
        cursor.pos += at + 4 + layout.size - start
