"""Facts of a GGUF model: one file, or the parts of a split one, from headers alone."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from archonctl.errors import ModelError
from archonctl.model.files import Files, LocalFiles
from archonctl.model.geometry import Geometry, ModelFacts, TensorBytes, TensorClass
from archonctl.model.gguf_cursor import hostile, shown, truncated
from archonctl.model.gguf_geometry import geometry_of
from archonctl.model.gguf_header import Header, read_header
from archonctl.model.gguf_types import tensor_class, tensor_size

SPLIT_NAME = re.compile(r"^(?P<prefix>.*)-(?P<part>[0-9]{5})-of-(?P<parts>[0-9]{5})\.gguf$", re.DOTALL)
"""llama_split_path of llama.cpp b11434 src/llama-model-loader.cpp; parts are numbered from 1 in names."""


MAX_SPLIT_FIGURE = 2**31 - 1


def read_gguf(path: Path) -> ModelFacts:
    """Facts of the model at ``path``; see ``read_gguf_file``."""
    return read_gguf_file(LocalFiles(path.parent), path.name, str(path))


def read_gguf_file(files: Files, name: str, path: str) -> ModelFacts:
    """Facts of a GGUF of version 2 or 3, or of a split one by the first of its parts (all parts are read).

    ``path`` is what the facts are called by.

    ``geometry`` is None where no law covers the architecture; ``geometry_reason`` then says so. Bytes are exact: the
    sum over the tensor list, which is checked against the length of each file.
    Raises ModelError: ``model-truncated``, ``model-header-hostile``, ``model-version-unsupported``,
    ``model-tensor-type-unknown``, ``model-geometry-invalid``, ``model-no-weights``, ``model-split-missing``,
    ``model-split-invalid``, ``model-missing``, ``model-unreadable``, ``model-not-a-file`` or ``model-is-directory``.
    """
    headers = _read_parts(files, name)
    first = headers[0]
    parts = _tensor_bytes(headers)
    if not parts:
        raise ModelError(
            "model-no-weights",
            "the header lists 0 tensors: a vocabulary or a half-made file, not a model",
            where=path,
            hint="point the declaration at the model itself",
        )
    geometry, reason = _geometry(first, any(part.cls == "shared_experts" for part in parts))
    return ModelFacts(
        path=path,
        format="gguf",
        geometry=geometry,
        file_bytes=sum(header.file_bytes for header in headers),
        tensor_bytes=parts,
        tensors=sum(part.tensors for part in parts),
        metadata=first.scalars,
        parts=len(headers),
        geometry_reason=reason,
        tensor_sizes=tuple(
            (tensor.name, tensor_size(tensor, header.path)[1]) for header in headers for tensor in header.tensors
        ),
    )


def _read_one(files: Files, name: str) -> Header:
    with files.open(name) as blob:
        return read_header(blob)


def _read_parts(files: Files, name: str) -> list[Header]:
    """The headers of all parts, the first one first."""
    first, path = _read_one(files, name), files.shown(name)
    count = _split_figure(first, "split.count", 1)
    if count <= 1:
        return [first]
    found = SPLIT_NAME.match(name)
    number = _split_figure(first, "split.no", 0)
    if found is None or int(found["parts"]) != count or int(found["part"]) != number + 1:
        wanted = f"NAME-{number + 1:05d}-of-{count:05d}.gguf"
        raise _split_error(
            path, f"is part {number + 1} of {count} and must be called {wanted}", "give it that name back"
        )
    names = [f"{found['prefix']}-{part:05d}-of-{count:05d}.gguf" for part in range(1, count + 1)]
    if number != 0:
        raise _split_error(
            path, f"is part {number + 1} of {count}; engines load a model by its first", f"use {files.shown(names[0])}"
        )
    files.prefetch(names[1:])
    headers = [first, *(_read_part(files, other, part, count) for part, other in enumerate(names[1:], start=1))]
    expected = _split_figure(first, "split.tensors.count", None)
    listed = sum(len(header.tensors) for header in headers)
    if listed != expected:
        message = f"its {count} parts list {listed:,} tensors together, the first says {expected:,}"
        raise _split_error(path, message, "fetch all parts again from one place")
    return headers


def _read_part(files: Files, name: str, part: int, count: int) -> Header:
    path = files.shown(name)
    try:
        header = _read_one(files, name)
    except ModelError as err:
        if err.code != "model-missing":
            raise
        raise ModelError(
            "model-split-missing",
            f"part {part + 1} of {count} is not there: {name}",
            where=path,
            hint="fetch it into the same folder",
        ) from None
    if (said := _split_figure(header, "split.no", None)) != part:
        raise _split_error(path, f"says that it is part {said + 1}, its name says {part + 1}", "fetch it again")
    return header


def _split_figure(header: Header, key: str, default: int | None) -> int:
    value = header.scalars.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_SPLIT_FIGURE:
        found = "is missing" if value is None else f"is {shown(str(value))}, not a number of parts or tensors"
        raise _split_error(header.path, f"{key} {found}", "fetch all parts again from one place")
    return value


def _split_error(path: str, message: str, hint: str) -> ModelError:
    return ModelError("model-split-invalid", message, where=path, hint=hint)


def _tensor_bytes(headers: Iterable[Header]) -> tuple[TensorBytes, ...]:
    """Bytes by class and element type over all parts, after checking where each tensor stands."""
    sums: dict[tuple[TensorClass, str], list[int]] = defaultdict(lambda: [0, 0])
    seen: set[str] = set()
    for header in headers:
        end = _checked_end(header, sums)
        if header.tensors and header.data_start + end > header.file_bytes:
            raise truncated(header.path, "the tensor data", header.data_start + end, header.file_bytes)
        names = {tensor.name for tensor in header.tensors}
        if twice := seen & names:
            raise hostile(header.path, f"tensor {shown(min(twice))} is in an earlier part too")
        seen |= names
    return tuple(TensorBytes(cls, dtype, size, count) for (cls, dtype), (size, count) in sorted(sums.items()))


def _checked_end(header: Header, sums: dict[tuple[TensorClass, str], list[int]]) -> int:
    """Add the tensors of one file to ``sums``; the byte after the last one, counted from the start of the data.

    Tensors must follow each other with nothing but padding between them, as ggml/src/gguf.cpp demands.
    """
    expected = end = 0
    step = header.alignment
    for tensor in header.tensors:
        dtype, size = tensor_size(tensor, header.path)
        if tensor.offset != expected:
            message = f"tensor {shown(tensor.name)} stands at offset {tensor.offset:,}, expected at {expected:,}"
            raise hostile(header.path, message)
        end = expected + size
        expected = -(-end // step) * step
        row = sums[tensor_class(tensor.name), dtype]
        row[0] += size
        row[1] += 1
    return end


def _geometry(header: Header, shared_experts: bool) -> tuple[Geometry | None, str]:
    try:
        return geometry_of(header, shared_experts=shared_experts), ""
    except ModelError as err:
        if err.code != "model-architecture-unknown":
            raise
        return None, err.message
