"""Model facts under their published schema, ``archonctl.inspect/1``."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from archonctl.model.geometry import ModelFacts

SCHEMA = "archonctl.inspect/1"


def facts_json(facts: ModelFacts) -> dict[str, Any]:
    """A JSON-ready dict: path, format, geometry with one entry a layer, bytes by class and dtype."""
    value = asdict(facts)
    return {"schema": SCHEMA, **value, "weight_bytes": facts.weight_bytes}
