"""The header of a safetensors file: 8 bytes of length, then JSON. No tensor data is read.

Format: safetensors README.md ("Format") and src/tensor.rs (``SafeTensors::read_metadata``, ``Metadata::validate``).
"""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TypeGuard, cast

from archonctl.errors import ModelError
from archonctl.model.blob import Blob
from archonctl.model.files import opened
from archonctl.model.geometry import TensorClass
from archonctl.model.gguf_cursor import hostile, shown, truncated

PREFIX_BYTES = 8
MAX_HEADER_BYTES = 100_000_000
"""MAX_HEADER_SIZE of safetensors src/tensor.rs."""
MAX_SIZE = 1 << 56
MAX_DIMENSIONS = 64


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """One tensor: where its bytes begin and end, counted from the end of the header."""

    name: str
    dtype: str
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class SafetensorsHeader:
    """What one file says, checked against its length."""

    path: str
    file_bytes: int
    tensors: tuple[TensorEntry, ...]


def read_safetensors(path: Path) -> SafetensorsHeader:
    """The header of one file of this machine; see ``safetensors_header``, and the errors of ``opened``."""
    with opened(path) as blob:
        return safetensors_header(blob)


def safetensors_header(blob: Blob) -> SafetensorsHeader:
    """The header of one file, whose tensors lie side by side and end with the file.

    Raises ModelError: ``model-truncated``, ``model-header-hostile`` and ``model-tensor-type-unknown``.
    """
    where, size = blob.path, blob.size
    if size < PREFIX_BYTES:
        raise truncated(where, "the length of the header", PREFIX_BYTES, size)
    length = int.from_bytes(blob.read(PREFIX_BYTES, 0), "little")
    if length > MAX_HEADER_BYTES:
        raise hostile(where, f"the header would have {length:,} bytes; the format allows {MAX_HEADER_BYTES:,}")
    if PREFIX_BYTES + length > size:
        raise truncated(where, "the header", PREFIX_BYTES + length, size)
    raw = blob.read(length, PREFIX_BYTES)
    if len(raw) != length:
        raise truncated(where, "the header", PREFIX_BYTES + length, PREFIX_BYTES + len(raw))
    tensors = _entries(parse_object(raw, where), where)
    _side_by_side(tensors, size - PREFIX_BYTES - length, where)
    return SafetensorsHeader(where, size, tensors)


def parse_object(raw: bytes, where: str) -> dict[str, object]:
    """A JSON object with no key twice, at any depth. Raises ModelError ``model-header-hostile``."""
    try:
        value: object = json.loads(raw.decode("utf-8"), object_pairs_hook=_once)
    except (ValueError, RecursionError) as err:
        said = "it is nested too deep" if isinstance(err, RecursionError) else shown(str(err))
        raise hostile(where, f"the JSON cannot be read: {said}") from None
    if not isinstance(value, dict):
        raise hostile(where, f"the JSON is no object: {shown(str(value)[:80])}")
    return value


def _once(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"{twice[:60]!r} stands there twice")
    return found


def _entries(header: Mapping[str, object], where: str) -> tuple[TensorEntry, ...]:
    entries = [_entry(name, value, where) for name, value in header.items() if name != "__metadata__"]
    return tuple(sorted(entries, key=lambda entry: (entry.begin, entry.end)))


def _entry(name: str, value: object, where: str) -> TensorEntry:
    found = value if isinstance(value, dict) else {}
    dtype, shape, offsets = found.get("dtype"), found.get("shape"), found.get("data_offsets")
    if not (isinstance(dtype, str) and _whole(shape, MAX_DIMENSIONS) and _whole(offsets, 2) and len(offsets) == 2):
        raise hostile(where, f"tensor {shown(name)} has no dtype, shape and data_offsets that can be understood")
    bits = _tables()[0].get(dtype)
    if bits is None:
        raise ModelError(
            "model-tensor-type-unknown", f"tensor {shown(name)} is of type {shown(dtype)}, which is not known",
            where=where, hint="a newer safetensors than this release knows",
        )  # fmt: skip
    begin, end = offsets
    wanted = math.prod(shape) * bits
    if end < begin or wanted != 8 * (end - begin):
        message = f"tensor {shown(name)} of {wanted:,} bits stands from byte {begin:,} to {end:,}"
        raise hostile(where, message)
    return TensorEntry(name, dtype, begin, end)


def _whole(value: object, most: int) -> TypeGuard[list[int]]:
    """True for a list of at most ``most`` whole numbers from 0."""
    return (
        isinstance(value, list)
        and len(value) <= most
        and all(isinstance(each, int) and not isinstance(each, bool) and 0 <= each <= MAX_SIZE for each in value)
    )


def _side_by_side(tensors: Iterable[TensorEntry], data_bytes: int, where: str) -> None:
    """Tensors follow each other without a gap, and the file ends with the last one (``Metadata::validate``)."""
    end = 0
    for tensor in tensors:
        if tensor.begin != end:
            how = "overlaps the one before it" if tensor.begin < end else "leaves a gap"
            raise hostile(where, f"tensor {shown(tensor.name)} begins at {tensor.begin:,}, not {end:,}: it {how}")
        end = tensor.end
    if end > data_bytes:
        raise truncated(where, "the tensor data", end, data_bytes)
    if end < data_bytes:
        raise hostile(where, f"{data_bytes - end:,} bytes follow the last tensor")


@cache
def _tables() -> tuple[Mapping[str, int], Sequence[tuple[TensorClass, re.Pattern[str]]]]:
    table = tomllib.loads(files("archonctl.model").joinpath("hf_tensors.toml").read_text("utf-8"))
    classes = [(cast(TensorClass, row["name"]), re.compile(row["pattern"])) for row in table["class"]]
    return table["bits"], classes


def element_bits() -> Mapping[str, int]:
    """Bits of one value, by the name of its type."""
    return _tables()[0]


@cache
def _class_of_stem(stem: str) -> TensorClass:
    return next((cls for cls, pattern in _tables()[1] if pattern.search(stem)), "other")


def hf_tensor_class(name: str) -> TensorClass:
    """The class of memory that a tensor belongs to, judged by its name; "other" for an unknown one."""
    # Layers and experts have the same names but for their numbers: each name is judged once.
    return _class_of_stem(re.sub(r"\.\d+(?=\.)", ".0", name[:512]))
