"""Model facts under their published schema, ``docs/schemas/inspect-1.json``."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from archonctl.model.geometry import Geometry, ModelFacts, Quantization, Recurrent

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
        "quantization": _quantization(facts.quantization) if facts.quantization else None,
        "metadata": None
        if facts.metadata is None
        else {name: _finite(value) for name, value in facts.metadata.items()},
    }


def _geometry(geometry: Geometry) -> dict[str, Any]:
    """Key by key, so that nothing is published before its schema names it."""
    return {
        "architecture": geometry.architecture,
        "name": geometry.name or None,
        "layers": [asdict(layer) for layer in geometry.layers],
        "hidden": geometry.hidden,
        "heads": geometry.heads,
        "vocab": geometry.vocab or None,
        "trained_context": geometry.trained_context,
        "experts": geometry.experts,
        "experts_used": geometry.experts_used,
        "experts_shared": geometry.experts_shared,
        "recurrent": _recurrent(geometry.recurrent) if geometry.recurrent else None,
        "nextn_layers": geometry.nextn_layers,
        "indexer_dim": geometry.indexer_dim,
        "sharing_layers": geometry.sharing_layers,
        "latent_dim": geometry.latent_dim,
        "rope_dim": geometry.rope_dim,
        "element_bytes": geometry.element_bytes or None,
    }


def _quantization(quantization: Quantization) -> dict[str, Any]:
    return {
        "method": quantization.method,
        "bits": quantization.bits,
        "group_size": quantization.group_size,
        "kv_cache": quantization.kv_cache or None,
    }


def _recurrent(state: Recurrent) -> dict[str, Any]:
    return {
        "kind": state.kind or None,
        "conv_elements": state.conv_elements,
        "ssm_elements": state.ssm_elements,
        "ssm_element_bytes": state.ssm_element_bytes or None,
        "conv_kernel": state.conv_kernel,
        "state_size": state.state_size,
        "inner_size": state.inner_size,
        "groups": state.groups,
        "time_step_rank": state.time_step_rank,
    }


def _finite(value: int | float | str | bool) -> int | float | str | bool | None:
    return None if isinstance(value, float) and not math.isfinite(value) else value
