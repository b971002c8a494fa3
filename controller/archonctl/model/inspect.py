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
from archonctl.model.other_formats import not_a_model

_LOOK_BYTES = 512
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
