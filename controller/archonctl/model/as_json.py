"""Model facts under their published schema, ``docs/schemas/inspect-1.json``."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from archonctl.model.geometry import Geometry, ModelFacts

SCHEMA = "archonctl.inspect/1"


def facts_json(facts: ModelFacts) -> dict[str, Any]:
    """A JSON-ready dict: path, format, geometry with one entry a layer, bytes by class and dtype.

    What a header does not say is null. So is a float that JSON cannot write (infinite, or no number).
    """
    return {
        "schema": SCHEMA,
        "path": facts.path,
        "format": facts.format,
        "parts": facts.parts,
        "file_bytes": facts.file_bytes,
        "weight_bytes": facts.weight_bytes,
        "tensors": facts.tensors,
        "tensor_bytes": [
            {"class": part.cls, "dtype": part.dtype, "bytes": part.bytes, "tensors": part.tensors}
            for part in facts.tensor_bytes
        ],
        "geometry": _geometry(facts.geometry) if facts.geometry else None,
        "geometry_reason": facts.geometry_reason or None,
        "metadata": None
        if facts.metadata is None
        else {name: _finite(value) for name, value in facts.metadata.items()},
    }


def _geometry(geometry: Geometry) -> dict[str, Any]:
    return {**asdict(geometry), "name": geometry.name or None, "vocab": geometry.vocab or None}


def _finite(value: int | float | str | bool) -> int | float | str | bool | None:
    return None if isinstance(value, float) and not math.isfinite(value) else value
