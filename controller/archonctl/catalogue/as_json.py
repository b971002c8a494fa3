"""Models of the catalogue for tools."""

from __future__ import annotations

from typing import Any

from archonctl.catalogue.entry import Entry
from archonctl.catalogue.layers import row_of
from archonctl.catalogue.values import CatalogueModel, Quant


def model_json(model: CatalogueModel) -> dict[str, Any]:
    """A model with its quants; bytes are null where nobody published them, "size" is then the estimate."""
    return {
        "name": model.name,
        "aliases": list(model.aliases),
        "repo": model.repo,
        "params_total": model.params_total,
        "params_active": model.params_active,
        "trained_context": model.trained_context,
        "origin": model.origin,
        "source": model.source or None,
        "quants": [_quant(quant) for quant in model.quants],
    }


def shown_json(model: CatalogueModel) -> dict[str, Any]:
    """The value of ``archonctl models show --json``."""
    return {
        "schema": "archonctl.models-show/1",
        **model_json(model),
        "geometry": dict(row_of(model.geometry, model.name)),
        "parameters": dict(model.parameters),
    }


def added_json(entry: Entry, file: str | None) -> dict[str, Any]:
    """The value of ``archonctl models add --json``; ``file`` is None where nothing was written."""
    value = {"name": entry.name, "quant": entry.quant, "is_new": entry.is_new, "file": file}
    return {"schema": "archonctl.models-add/1", **value, "entry": dict(entry.row)}


def _quant(quant: Quant) -> dict[str, Any]:
    size = quant.size
    return {
        "name": quant.name,
        "engines": list(quant.engines),
        "repo": quant.repo,
        "file": quant.file or None,
        "revision": quant.revision or None,
        "sha256": list(quant.sha256),
        "bytes": quant.bytes,
        "size_bytes": {"low": round(size.low), "best": round(size.best), "high": round(size.high)},
        "bytes_source": quant.bytes_source or None,
    }
