"""How many bytes a quant of a model has: as published, else by what the quant makes of each class of tensors."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any, get_args

from archonctl.memory.interval import Interval
from archonctl.model.geometry import TensorBytes, TensorClass

BLOCK = 256
"""Values of a block of the K types (QK_K of llama.cpp's ggml-common.h)."""
CLASSES: tuple[TensorClass, ...] = get_args(TensorClass)


@dataclass(frozen=True, slots=True)
class QuantLaw:
    """Bits a parameter by class; ``tied`` is that of an embedding which is also the output, ``narrow`` that of a
    feed-forward part whose rows make no whole blocks."""

    name: str
    engines: tuple[str, ...]
    bits: Mapping[TensorClass, float]
    tied: float
    spread: float
    spread_experts: float
    dtype: str
    source: str
    narrow: float | None = None


@cache
def quant_laws() -> Mapping[str, QuantLaw]:
    """Law by name of the quant (data: quants.toml)."""
    rows = tomllib.loads(files("archonctl.catalogue").joinpath("quants.toml").read_text("utf-8"))["quant"]
    return {name: _law(name, row) for row in rows for name in row["names"]}


def _law(name: str, row: Mapping[str, Any]) -> QuantLaw:
    bits: dict[TensorClass, float] = {cls: row.get(cls, row["bits"]) for cls in CLASSES}
    tied = row.get("tied", bits["embedding"])
    spreads = row["spread"], row.get("spread_experts", row["spread"])
    return QuantLaw(name, tuple(row["engines"]), bits, tied, *spreads, row["dtype"], row["source"], row.get("narrow"))


def even_law(name: str, engines: tuple[str, ...]) -> QuantLaw:
    """Where no law is known: the published bytes are shared out evenly over the parameters."""
    return QuantLaw(name, engines, dict.fromkeys(CLASSES, 8.0), 8.0, 0.0, 0.0, name, "the published bytes")


def fitted_law(law: QuantLaw, dense_ffn: int, hidden: int, layers: int) -> QuantLaw:
    """The law for a dense model whose feed-forward parts are three matrices a layer; any other keeps it as it is."""
    width, rest = divmod(dense_ffn, 3 * hidden * layers)
    if law.narrow is None or rest or width % BLOCK == 0:
        return law
    return replace(law, bits={**law.bits, "dense_ffn": law.narrow})


def law_bytes(law: QuantLaw, parameters: Mapping[TensorClass, int], towers: int) -> tuple[TensorBytes, ...]:
    """Best estimate by class. ``towers`` are encoders of pictures and sound: 16 bits, and none of a GGUF."""
    parts = []
    for cls, count in parameters.items():
        bits = law.tied if cls == "embedding" and "output" not in parameters else law.bits[cls]
        dtype = law.dtype if bits < 16 else "F32" if bits > 16 else "BF16"
        parts.append(TensorBytes(cls, dtype, round(count * bits / 8), 1))
    if towers and "llamacpp" not in law.engines:
        parts.append(TensorBytes("other", "BF16", towers * 2, 1))
    return tuple(parts)


def scaled(parts: tuple[TensorBytes, ...], total: int) -> tuple[TensorBytes, ...]:
    """The same shares of ``total`` bytes; the largest part takes what rounding leaves."""
    known = sum(part.bytes for part in parts)
    sizes = [part.bytes * total // known for part in parts]
    sizes[max(range(len(sizes)), key=sizes.__getitem__)] += total - sum(sizes)
    return tuple(TensorBytes(p.cls, p.dtype, size, p.tensors) for p, size in zip(parts, sizes, strict=True))


def size_of(law: QuantLaw, parts: tuple[TensorBytes, ...], published: int | None) -> Interval:
    """Bytes of the weights: exact where published, else the estimate with the spread of its law."""
    if published is not None:
        return Interval.exact(published, "declared")
    best = sum(part.bytes for part in parts)
    spread = law.spread_experts if any(part.cls == "routed_experts" for part in parts) else law.spread
    return Interval(best * (1 - spread), best, best * (1 + spread), "assumed")
