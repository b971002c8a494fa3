"""Facts of a Hugging Face folder: config.json, the safetensors index and the headers of its files; no weights are read.

Which files an engine loads: vLLM ``model_executor/model_loader/weight_utils.py`` (those of the index where there is
one, else all ``*.safetensors``).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from archonctl.errors import ModelError
from archonctl.model.files import Files, LocalFiles
from archonctl.model.geometry import Geometry, ModelFacts, Quantization, TensorBytes, TensorClass
from archonctl.model.gguf_cursor import hostile, shown
from archonctl.model.hf_config import hf_geometry, text_config
from archonctl.model.hf_quant import MODELOPT, quantization_of, stored_as
from archonctl.model.safetensors import SafetensorsHeader, hf_tensor_class, parse_object, safetensors_header

CONFIG = "config.json"
INDEX = "model.safetensors.index.json"
MAX_CONFIG_BYTES = 16 * 1024 * 1024
MAX_INDEX_BYTES = 256 * 1024 * 1024
MAX_FILES = 4096
_PART = re.compile(r"^(?P<stem>.*)-(?P<part>\d{5})-of-(?P<parts>\d{5})\.safetensors$", re.DOTALL)
_NESTED = ("rope_scaling", "rope_parameters", "quantization_config", "vision_config")


def read_hf_folder(folder: Path, names: Sequence[str]) -> ModelFacts:
    """Facts of a folder of this machine; see ``read_hf_files``."""
    return read_hf_files(LocalFiles(folder), names)


def read_hf_files(folder: Files, names: Sequence[str]) -> ModelFacts:
    """Facts of a folder with these file names in it.

    Without weights (config.json alone) bytes are 0 and ``tensors`` is 0; without config.json, or where no law covers
    the model, ``geometry`` is None and ``geometry_reason`` says why. ``metadata`` holds the scalars of config.json.
    Raises ModelError: ``model-config-invalid``, ``model-split-missing``, ``model-split-invalid``,
    ``model-geometry-invalid``, ``model-no-weights`` and those of ``read_safetensors``.
    """
    config, config_bytes = _config(folder) if CONFIG in names else (None, 0)
    geometry, reason = _geometry(config, folder)
    index = _index(folder) if INDEX in names else None
    headers = _headers(folder, names, index)
    quantization = _quantization(config, folder, names)
    parts = _tensor_bytes(folder, headers, quantization)
    if headers and not parts:
        message = f"its {len(headers)} safetensors files list no tensor"
        raise ModelError("model-no-weights", message, where=folder.where, hint="fetch the model itself")
    size = sum(header.file_bytes for header in headers) or config_bytes
    return ModelFacts(
        path=folder.where,
        format="safetensors",
        geometry=geometry,
        file_bytes=size,
        tensor_bytes=parts,
        tensors=sum(part.tensors for part in parts),
        metadata=None if config is None else scalars(config),
        parts=max(1, len(headers)),
        quantization=quantization,
        geometry_reason=reason,
    )


def _read_json(folder: Files, name: str, limit: int) -> tuple[dict[str, object], int]:
    """The object, and the size of the file in bytes."""
    with folder.open(name) as blob:
        if blob.size > limit:
            raise hostile(blob.path, f"has {blob.size:,} bytes; at most {limit:,} are read")
        return parse_object(blob.read(blob.size, 0), blob.path), blob.size


def _config(folder: Files) -> tuple[dict[str, object], int]:
    try:
        return _read_json(folder, CONFIG, MAX_CONFIG_BYTES)
    except ModelError as err:
        if err.code != "model-header-hostile":
            raise
        raise ModelError("model-config-invalid", err.message, where=err.where, hint="fetch it again") from None


def _geometry(config: Mapping[str, object] | None, folder: Files) -> tuple[Geometry | None, str]:
    if config is None:
        return None, f"the folder has no {CONFIG}, which describes the layers"
    try:
        return hf_geometry(config, where=folder.shown(CONFIG)), ""
    except ModelError as err:
        if err.code != "model-architecture-unknown":
            raise
        return None, err.message


def _quantization(config: Mapping[str, object] | None, folder: Files, names: Sequence[str]) -> Quantization | None:
    modelopt = _read_json(folder, MODELOPT, MAX_CONFIG_BYTES)[0] if MODELOPT in names else None
    said = {} if config is None else {**text_config(config), **config}  # the outer one speaks for all of them
    return quantization_of(said, modelopt)


def scalars(config: Mapping[str, object]) -> dict[str, int | float | str | bool]:
    """Scalars of the text model, and of the few nested objects that decide memory, as ``object.key``."""
    text = text_config(config)
    found = {key: value for key, value in {**config, **text}.items() if isinstance(value, int | float | str)}
    for name in _NESTED:
        inner = text.get(name, config.get(name))
        if isinstance(inner, dict):
            found |= {f"{name}.{key}": each for key, each in _flat(inner).items()}
    return found


def _flat(nested: Mapping[str, object]) -> dict[str, int | float | str | bool]:
    """Scalars of an object and of the objects in it (``rope_parameters`` may be by kind of layer)."""
    found: dict[str, int | float | str | bool] = {}
    for key, value in nested.items():
        inner = {f"{key}.{name}": each for name, each in value.items()} if isinstance(value, dict) else {key: value}
        found |= {name: each for name, each in inner.items() if isinstance(each, int | float | str)}
    return found


def _index(folder: Files) -> dict[str, str]:
    """File by tensor name."""
    path = folder.shown(INDEX)
    weights = _read_json(folder, INDEX, MAX_INDEX_BYTES)[0].get("weight_map")
    if not isinstance(weights, dict) or not weights:
        raise hostile(path, "it has no weight_map, or an empty one")
    for tensor, name in weights.items():
        if not isinstance(name, str) or not name or "/" in name or name.startswith(".") or "\0" in name:
            raise hostile(path, f"tensor {shown(tensor)} would be in {shown(str(name))}, not a file of this folder")
    return weights


def _headers(folder: Files, names: Sequence[str], index: Mapping[str, str] | None) -> list[SafetensorsHeader]:
    wanted = _without_index(folder, names) if index is None else sorted(set(index.values()))
    if len(wanted) > MAX_FILES:
        raise hostile(folder.where, f"it would have {len(wanted):,} weight files; at most {MAX_FILES:,} are read")
    folder.prefetch(wanted)
    headers = [_part(folder, name, len(wanted)) for name in wanted]
    if index is not None:
        _agree(folder.shown(INDEX), index, dict(zip(wanted, headers, strict=True)))
    return headers


def _without_index(folder: Files, names: Sequence[str]) -> list[str]:
    """All safetensors files; what their names say about how many there are must be true."""
    found = [name for name in names if name.endswith(".safetensors")]
    if any(not name.startswith("consolidated") for name in found):
        # Mistral's own copy of the same weights, beside the one for transformers.
        found = [name for name in found if not name.startswith("consolidated")]
    series: set[tuple[str, int]] = set()
    for name in found:
        if part := _PART.match(name):
            count = int(part["parts"])
            if not 1 <= int(part["part"]) <= count <= MAX_FILES:
                raise ModelError("model-split-invalid", f"{shown(name)} is no part of {count:,}", where=folder.where)
            series.add((part["stem"], count))
    if len(series) > 1:
        message = f"holds parts of {len(series)} series of files, and no index says which is the model"
        raise ModelError("model-split-invalid", message, where=folder.where, hint="keep one of them in the folder")
    found += [f"{stem}-{i:05d}-of-{count:05d}.safetensors" for stem, count in series for i in range(1, count + 1)]
    return sorted(set(found))


def _part(folder: Files, name: str, count: int) -> SafetensorsHeader:
    try:
        with folder.open(name) as blob:
            return safetensors_header(blob)
    except ModelError as err:
        if err.code != "model-missing":
            raise
        message = f"one of {count} weight files is not there: {shown(name)}"
        hint = "fetch it into the same folder"
        raise ModelError("model-split-missing", message, where=folder.shown(name), hint=hint) from None


def _agree(path: str, index: Mapping[str, str], headers: Mapping[str, SafetensorsHeader]) -> None:
    held = {(name, tensor.name) for name, header in headers.items() for tensor in header.tensors}
    absent = [(name, tensor) for tensor, name in index.items() if (name, tensor) not in held]
    if absent:
        name, tensor = absent[0]
        raise ModelError(
            "model-split-invalid",
            f"{len(absent):,} tensors of the index are not in their files, such as {shown(tensor)} in {shown(name)}",
            where=path,
            hint="fetch index and weights again from one place",
        )


def _tensor_bytes(
    folder: Files, headers: Sequence[SafetensorsHeader], quantization: Quantization | None
) -> tuple[TensorBytes, ...]:
    sums: dict[tuple[TensorClass, str], list[int]] = defaultdict(lambda: [0, 0])
    seen: set[str] = set()
    for header in headers:
        for tensor in header.tensors:
            if tensor.name in seen:
                message = f"tensor {shown(tensor.name)} is in two files"
                hint = "keep the files of one checkpoint in the folder, or its index"
                raise ModelError("model-split-invalid", message, where=folder.where, hint=hint)
            seen.add(tensor.name)
            row = sums[hf_tensor_class(tensor.name), stored_as(tensor.name, tensor.dtype, quantization)]
            row[0] += tensor.end - tensor.begin
            row[1] += 1
    return tuple(TensorBytes(cls, dtype, size, count) for (cls, dtype), (size, count) in sorted(sums.items()))
