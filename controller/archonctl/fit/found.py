"""A model that a person names: of the catalogue, or read from a file, a folder or the network."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from archonctl.catalogue.values import Catalogue, CatalogueModel, Quant
from archonctl.deployment.remote import is_remote
from archonctl.errors import ModelError
from archonctl.memory.interval import Interval
from archonctl.model.geometry import ModelFacts, TensorClass
from archonctl.model.gguf import SPLIT_NAME
from archonctl.model.gguf_types import element_types
from archonctl.model.inspect import inspect_model

MOST_VARIANTS = 24
"""GGUF files of one folder or repository that are read: each takes some megabytes of header."""

_FILE_TYPES = (
    "F32 F16 Q4_0 Q4_1 - - - Q8_0 Q5_0 Q5_1 Q2_K Q3_K_S Q3_K_M Q3_K_L Q4_K_S Q4_K_M Q5_K_S Q5_K_M Q6_K IQ2_XXS "
    "IQ2_XS Q2_K IQ3_XS IQ3_XXS IQ1_S IQ4_NL IQ3_S IQ3_M IQ2_S IQ2_M IQ4_XS IQ1_M BF16 - - - - - MXFP4"
)
FILE_TYPES: Mapping[int, str] = dict(enumerate(_FILE_TYPES.split()))
"""``general.file_type`` of a GGUF header: LLAMA_FTYPE of llama.cpp b11434 include/llama.h, without MOSTLY."""

_PLAIN: Mapping[str, float] = {
    "F64": 8,
    "F32": 4,
    "F16": 2,
    "BF16": 2,
    "F8_E4M3": 1,
    "F8_E5M2": 1,
    "INT8": 1,
    "I8": 1,
    "U8": 1,
    "INT4": 0.5,
    "MXFP4": 0.5,
    "NVFP4": 0.5,
    "NF4": 0.5,
    "FP4": 0.5,
}
"""Bytes a weight of safetensors dtypes, scales aside."""


@dataclass(frozen=True, slots=True)
class FoundModel(CatalogueModel):
    """A model that was read: each quant has the facts of its own file."""

    read: tuple[ModelFacts, ...] = ()

    def facts(self, quant: Quant) -> ModelFacts:
        """As read from the file."""
        return self.read[self.quants.index(quant)]


def model_named(text: str, catalogue: Callable[[], Catalogue]) -> CatalogueModel:
    """A path (a GGUF, a folder of them or of safetensors), ``hf:org/name``, an address, or a name of the catalogue.

    Raises UsageError ``model-unknown``, and ModelError as ``inspect_model``.
    """
    if is_remote(text) or text.endswith(".gguf") or text.startswith(("/", "./", "../", "~")) or Path(text).exists():
        return read_model(str(Path(text).expanduser()) if text.startswith("~") else text)
    return catalogue().find(text)


def read_model(path: str) -> CatalogueModel:
    """The model at a path or address, with the variants that lie there as its quants, the largest first."""
    try:
        read: Sequence[ModelFacts] = (inspect_model(path),)
    except ModelError as err:
        if err.code != "model-is-directory":
            raise
        if not (names := _variants(path)):
            raise
        read = sorted(map(inspect_model, names[:MOST_VARIANTS]), key=lambda facts: -facts.weight_bytes)
        if len({facts.geometry and facts.geometry.layers for facts in read}) > 1:
            raise  # several models, not variants of one
    geometry = read[0].require_geometry()
    parameters = _parameters(read[0])
    total = sum(parameters.values())
    used = geometry.experts_used / geometry.experts if geometry.experts else 1.0
    active = total - round(parameters.get("routed_experts", 0) * (1 - used))
    return FoundModel(
        name=path.rstrip("/").rpartition("/")[2] if not is_remote(path) else path,
        repo="",
        geometry=geometry,
        parameters=parameters,
        params_total=total,
        params_active=active,
        trained_context=geometry.trained_context,
        quants=tuple(map(_quant, read)),
        source="header",
        origin=path,
        read=tuple(read),
    )


def _variants(path: str) -> list[str]:
    """The GGUF models of a folder: of a split one its first part, and no projectors for pictures."""
    if is_remote(path):
        from archonctl.model.remote import remote_models

        return [f"{path.rstrip('/')}/{name}" for name in remote_models(path)]
    names = sorted(each.name for each in Path(path).glob("*.gguf"))
    parts = {name: SPLIT_NAME.match(name) for name in names if not name.startswith("mmproj")}
    return [str(Path(path) / name) for name, part in parts.items() if part is None or int(part["part"]) == 1]


def _quant(facts: ModelFacts) -> Quant:
    gguf = facts.format == "gguf"
    return Quant(
        name=_gguf_name(facts) if gguf else _checkpoint_name(facts),
        engines=("llamacpp",) if gguf else ("vllm", "sglang"),
        bytes=facts.weight_bytes or facts.file_bytes,
        bytes_source="header",
        revision="",
        sha256=(),
        repo=facts.path,
        file="",
        size=Interval.exact(facts.weight_bytes or facts.file_bytes, "header"),
        tensors=facts.tensor_bytes,
    )


def _gguf_name(facts: ModelFacts) -> str:
    """By the header, else by the name of the file, else just GGUF."""
    kind = (facts.metadata or {}).get("general.file_type")
    if isinstance(kind, int) and (name := FILE_TYPES.get(kind % 1024, "-")) != "-":
        return name
    known = "|".join(sorted({name for name in FILE_TYPES.values() if name != "-"}, key=len, reverse=True))
    found = re.search(rf"(?<![A-Za-z0-9])({known})(?![A-Za-z0-9])", facts.path.rpartition("/")[2], re.IGNORECASE)
    return found[1].upper() if found else "GGUF"


def _checkpoint_name(facts: ModelFacts) -> str:
    """The type of a checkpoint's weights, in the words of kernels.toml."""
    said = facts.quantization
    if said is None:
        sizes: dict[str, int] = {}
        for part in facts.tensor_bytes:
            sizes[part.dtype] = sizes.get(part.dtype, 0) + part.bytes
        largest = max(sizes, key=lambda dtype: sizes[dtype], default="BF16")
        return {"F16": "FP16", "F8_E4M3": "FP8", "F8_E5M2": "FP8"}.get(largest, largest)
    if said.packed in ("MXFP4", "NVFP4", "INT8"):
        return said.packed
    if said.method in ("awq", "gptq"):
        return said.method.upper()
    if said.packed == "INT4":
        return "INT4"
    return "FP8" if said.bits == 8 and said.method != "bitsandbytes" else said.method.upper()


def _parameters(facts: ModelFacts) -> dict[TensorClass, int]:
    """Weights by class, from the bytes of each type; a type of unknown width adds nothing."""
    found: dict[TensorClass, int] = {}
    for part in facts.tensor_bytes:
        if width := _widths().get(part.dtype.lower()):
            found[part.cls] = found.get(part.cls, 0) + round(part.bytes / width)
    return found


@cache
def _widths() -> Mapping[str, float]:
    gguf = {kind.name.lower(): kind.bytes / kind.block for kind in element_types().values()}
    return {name.lower(): width for name, width in _PLAIN.items()} | gguf
