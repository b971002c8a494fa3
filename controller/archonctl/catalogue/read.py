"""What a model that was read is called, and how many parameters it has: from types and bytes of its tensors."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache

from archonctl.model.geometry import ModelFacts, TensorBytes, TensorClass
from archonctl.model.gguf_types import element_types
from archonctl.model.safetensors import element_bits

_FILE_TYPES = (
    "F32 F16 Q4_0 Q4_1 - - - Q8_0 Q5_0 Q5_1 Q2_K Q3_K_S Q3_K_M Q3_K_L Q4_K_S Q4_K_M Q5_K_S Q5_K_M Q6_K IQ2_XXS "
    "IQ2_XS Q2_K IQ3_XS IQ3_XXS IQ1_S IQ4_NL IQ3_S IQ3_M IQ2_S IQ2_M IQ4_XS IQ1_M BF16 - - - - - MXFP4"
)
FILE_TYPES: Mapping[int, str] = dict(enumerate(_FILE_TYPES.split()))
"""``general.file_type`` of a GGUF header: LLAMA_FTYPE of llama.cpp b11434 include/llama.h, without MOSTLY."""
_NAMES = sorted({name for name in FILE_TYPES.values() if name != "-"}, key=len, reverse=True)
_NAMED = re.compile(rf"(?<![A-Za-z0-9])({'|'.join(_NAMES)})(?![A-Za-z0-9])", re.IGNORECASE)
_PACKED: Mapping[str, int] = {"INT2": 2, "INT3": 3, "INT4": 4, "INT8": 8, "MXFP4": 4, "NVFP4": 4, "NF4": 4, "FP4": 4}
_SCALES = 8
"""Values beside packed ones, of one class, are scales where they are fewer than one in so many: a group has 16 at
least."""


def quant_name(facts: ModelFacts) -> str:
    """The type of the weights as the tables of kernels call it; "GGUF" for a mix that its header does not name."""
    return _gguf_name(facts) if facts.format == "gguf" else _checkpoint_name(facts)


def _gguf_name(facts: ModelFacts) -> str:
    kind = (facts.metadata or {}).get("general.file_type")
    if isinstance(kind, int) and (name := FILE_TYPES.get(kind % 1024, "-")) != "-":
        return name
    found = _NAMED.search(facts.path.rpartition("/")[2])
    return found[1].upper() if found else "GGUF"


def _checkpoint_name(facts: ModelFacts) -> str:
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


def parameters_of(facts: ModelFacts) -> dict[TensorClass, int]:
    """Parameters by class. Scales of packed weights are none; a type of unknown width adds nothing."""
    found: dict[TensorClass, list[TensorBytes]] = {}
    for part in facts.tensor_bytes:
        found.setdefault(part.cls, []).append(part)
    return {cls: count for cls, parts in found.items() if (count := _count(parts))}


def _count(parts: Iterable[TensorBytes]) -> int:
    packed = plain = 0.0
    for part in parts:
        if bits := _PACKED.get(part.dtype):
            packed += part.bytes * 8 / bits
        elif width := _widths().get(part.dtype.lower()):
            plain += part.bytes * 8 / width
    return round(packed if plain * _SCALES < packed else packed + plain)


@cache
def _widths() -> Mapping[str, float]:
    """Bits of a value, by the name of its type in lower case."""
    plain = {name.lower(): float(bits) for name, bits in element_bits().items()}
    return plain | {kind.name.lower(): kind.bytes * 8 / kind.block for kind in element_types().values()}
