"""Look at whatever a declaration calls a model, and say in one sentence what it is if it is not one."""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path

from archonctl.deployment.remote import is_remote
from archonctl.errors import ModelError
from archonctl.model.files import opened, unreadable
from archonctl.model.geometry import ModelFacts
from archonctl.model.gguf import read_gguf
from archonctl.model.gguf_cursor import MAGIC

_LOOK_BYTES = 512
_LFS_POINTER = b"version https://git-lfs.github.com/spec/"
"""First line of a pointer file: docs/spec.md of git-lfs."""
_OLD_GGML = (b"lmgg", b"fmgg", b"tjgg", b"algg")
"""Magics ggml, ggmf, ggjt and ggla as they stand in a little-endian file; llama.cpp reads none of them since 2023."""
_ZIP = b"PK\x03\x04"
_WEIGHT_FILES = (".bin", ".pt", ".pth")


def inspect_model(path: str | Path) -> ModelFacts:
    """Facts of the model at ``path``, a GGUF file or a folder of Hugging Face files; symbolic links are followed.

    ``hf:org/name`` and addresses are read over the network (``remote``).

    Raises ModelError, one code for each thing that is not a model: ``model-missing``, ``model-unreadable``,
    ``model-is-directory``, ``model-not-a-file``, ``model-empty``, ``model-lfs-pointer``, ``model-is-html``,
    ``model-format-unsupported``, ``model-not-gguf``; and those of ``read_gguf`` and ``read_hf_folder``.
    """
    if not str(path):
        raise ModelError("model-missing", "no path is given", hint="set [model] path")
    if is_remote(str(path)):
        from archonctl.model.remote import inspect_remote

        return inspect_remote(str(path))
    place = Path(path)
    try:
        start, size = _beginning(place)
    except ModelError as err:
        if err.code == "model-is-directory":
            return _directory(place)
        raise
    if size == 0:
        raise ModelError("model-empty", "the file is empty (0 bytes)", where=str(place), hint="fetch it again")
    if not start.startswith(MAGIC):
        raise not_a_model(str(place), start, size)
    return read_gguf(place)


def _beginning(path: Path) -> tuple[bytes, int]:
    with opened(path) as blob:
        return blob.read(_LOOK_BYTES, 0), blob.size


def not_a_model(where: str, start: bytes, size: int) -> ModelError:
    """What a file is that begins like this and is no GGUF."""
    text = start.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if start.startswith(_LFS_POINTER):
        message = f"is a Git LFS pointer of {size:,} bytes, not the model it points to"
        return ModelError("model-lfs-pointer", message, where=where, hint="run git lfs pull in that folder")
    if text.startswith((b"<!doctype html", b"<html", b"<head", b"<?xml")):
        message = f"is a web page of {size:,} bytes that was saved under this name"
        return ModelError("model-is-html", message, where=where, hint="fetch the file itself; a login may be needed")
    if kind := _other_format(start, size):
        message = f"is {kind}; this release reads GGUF files and folders of safetensors"
        hint = (
            f"name its folder, {where.rpartition('/')[0] or '.'}"
            if "safetensors" in kind
            else "use a GGUF of the model"
        )
        return ModelError("model-format-unsupported", message, where=where, hint=hint)
    message = f"is no GGUF: it starts with {start[:4]!r} instead of b'GGUF' ({size:,} bytes)"
    return ModelError("model-not-gguf", message, where=where, hint="correct the path, or fetch the file again")


def _other_format(start: bytes, size: int) -> str:
    if start[:4] in _OLD_GGML:
        return "a ggml file from before GGUF (August 2023)"
    if start.startswith(_ZIP):
        return "a PyTorch checkpoint or another zip archive"
    header_bytes = int.from_bytes(start[:8], "little")
    if start[8:9] == b"{" and 2 <= header_bytes <= size - 8:
        return "a safetensors file"
    return ""


def _directory(path: Path) -> ModelFacts:
    """A folder of Hugging Face files; raises for one of another format, of GGUF files, or of neither.

    Only the first ten thousand names are looked at.
    """
    try:
        with os.scandir(path) as entries:
            names = sorted(entry.name for entry in islice(entries, 10_000))
    except OSError as err:
        raise unreadable(path, err) from None
    # Only such a folder needs these modules; a GGUF is planned without them.
    from archonctl.model.hf_folder import CONFIG, INDEX, read_hf_folder

    ggufs = [name for name in names if name.endswith(".gguf")]
    weights = [name for name in names if name.endswith(_WEIGHT_FILES)]
    if any(name.endswith(".safetensors") for name in names) or INDEX in names:
        return read_hf_folder(path, names)
    if CONFIG in names and not ggufs and not weights:
        return read_hf_folder(path, names)
    if weights and not ggufs:
        message = "is a folder of PyTorch weights, which this release does not read"
        hint = "use a GGUF of the model, or its safetensors"
        raise ModelError("model-format-unsupported", message, where=str(path), hint=hint)
    shown = f"one of its files, such as {path / ggufs[0]}" if ggufs else "the file itself"
    raise ModelError("model-is-directory", "is a directory, not a model file", where=str(path), hint=f"name {shown}")
