"""What a file is that is no GGUF, from its first bytes."""

from __future__ import annotations

from archonctl.errors import ModelError

_LFS_POINTER = b"version https://git-lfs.github.com/spec/"
"""First line of a pointer file: docs/spec.md of git-lfs."""
_OLD_GGML = (b"lmgg", b"fmgg", b"tjgg", b"algg")
"""Magics ggml, ggmf, ggjt and ggla as they stand in a little-endian file; llama.cpp reads none of them since 2023."""
_ZIP = b"PK\x03\x04"


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
