"""From merged rows to models, and what is wrong with a row that looks right by itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from archonctl.catalogue.layers import geometry_of, missing_kinds
from archonctl.catalogue.quants import CLASSES, QuantLaw, even_law, fitted_law, law_bytes, quant_laws, scaled, size_of
from archonctl.catalogue.schema import GeometryRow, ModelRow, QuantRow
from archonctl.catalogue.values import CatalogueModel, Quant
from archonctl.errors import DeclarationError
from archonctl.model.geometry import Geometry, TensorClass

BITS = (0.5, 40.0)
"""A parameter has between half a bit and 32 bits (and scales): anything else is a slip of units."""


_WHOLE = tuple(name for name, field in GeometryRow.model_fields.items() if field.is_required())


def problems_of(row: ModelRow, where: str) -> Iterator[DeclarationError]:
    """What keeps a merged row from being a model: ``catalogue-incomplete`` and ``catalogue-contradicts``."""
    wanted = ("repo", "trained_context", "geometry", "parameters", "quant")
    if missing := [key for key in wanted if not getattr(row, key)]:
        message = f"{row.name} has no {', no '.join(missing)}"
        hint = "archonctl models add hf:ORG/NAME looks up what a new model needs"
        yield DeclarationError("catalogue-incomplete", message, where=where, hint=hint)
        return
    if missing := [f"geometry.{key}" for key in _WHOLE if getattr(row.geometry, key) is None]:
        message = f"{row.name} has no {', no '.join(missing)}"
        yield DeclarationError("catalogue-incomplete", message, where=where)
        return
    geometry, parameters = _geometry(row), _parameters(row)
    if kinds := missing_kinds(geometry):
        message = f"{row.name}: the pattern names {', '.join(kinds)} layers, which nothing describes"
        hint = f"add geometry.{kinds[0]}"
        yield DeclarationError("catalogue-incomplete", message, where=where, hint=hint)
    if not parameters:
        yield DeclarationError("catalogue-incomplete", f"{row.name} has an empty table parameters", where=where)
    if geometry.experts_used > geometry.experts:
        message = f"{row.name}: {geometry.experts_used} experts are used of {geometry.experts}"
        yield DeclarationError("catalogue-contradicts", message, where=where)
    for quant in row.quant:
        yield from _quant_problems(row, quant, sum(parameters.values()), where)


def _quant_problems(row: ModelRow, quant: QuantRow, parameters: int, where: str) -> Iterator[DeclarationError]:
    name, law = f"{row.name} {quant.name}", quant_laws().get(quant.name)
    if not quant.engines and law is None:
        message = f"{name}: no engine is named, and the quant is none of {', '.join(quant_laws())}"
        yield DeclarationError("catalogue-incomplete", message, where=where, hint="add engines to it")
    if quant.bytes is None and law is None:
        message = f"{name}: its bytes are not given, and no law is known to estimate them by"
        yield DeclarationError("catalogue-incomplete", message, where=where, hint="add bytes to it")
    if quant.bytes is not None and parameters:
        bits = 8 * quant.bytes / parameters
        if not BITS[0] <= bits <= BITS[1]:
            message = f"{name}: {quant.bytes:,} bytes are {bits:,.2f} bits for each of {parameters:,} parameters"
            hint = f"between {BITS[0]:g} and {BITS[1]:g} bits are believed"
            yield DeclarationError("catalogue-contradicts", message, where=where, hint=hint)


def model_of(row: ModelRow, origin: str) -> CatalogueModel:
    """The model of a row without problems."""
    if row.repo is None or row.trained_context is None:
        raise ValueError(f"{row.name} was not checked")
    parameters, towers = _parameters(row), row.towers or 0
    geometry = geometry_of(_geometry(row), row.name, row.trained_context)
    total = sum(parameters.values()) + towers
    idle = 0
    if geometry.experts:
        routed = parameters.get("routed_experts", 0)
        idle = routed - routed * geometry.experts_used // geometry.experts
    return CatalogueModel(
        name=row.name,
        repo=row.repo,
        geometry=geometry,
        parameters=parameters,
        params_total=total,
        params_active=total - idle,
        trained_context=row.trained_context,
        quants=tuple(_quant(row, quant, geometry, parameters, row.repo) for quant in row.quant),
        source=row.source or "",
        origin=origin,
        aliases=row.aliases,
    )


def _geometry(row: ModelRow) -> GeometryRow:
    return GeometryRow.model_validate(dict(row.geometry or {}))


def _parameters(row: ModelRow) -> dict[TensorClass, int]:
    said = row.parameters
    return {} if said is None else {cls: count for cls in CLASSES if (count := getattr(said, cls))}


def _quant(row: ModelRow, quant: QuantRow, geometry: Geometry, parameters: dict[TensorClass, int], repo: str) -> Quant:
    law = quant_laws().get(quant.name) or even_law(quant.name, quant.engines)
    law = fitted_law(law, parameters.get("dense_ffn", 0), geometry.hidden, len(geometry.layers) - geometry.nextn_layers)
    parts = law_bytes(_served_by(law, quant), parameters, row.towers or 0)
    return Quant(
        name=quant.name,
        engines=quant.engines or law.engines,
        bytes=quant.bytes,
        bytes_source=(quant.source or "") if quant.bytes is not None else f"estimated: {law.source}",
        revision=quant.revision or "",
        sha256=quant.sha256,
        repo=quant.repo or repo,
        file=quant.file or "",
        size=size_of(law, parts, quant.bytes),
        tensors=parts if quant.bytes is None else scaled(parts, quant.bytes),
    )


def _served_by(law: QuantLaw, quant: QuantRow) -> QuantLaw:
    """The law with the engines of the row, which decide whether towers are in the files."""
    engines = quant.engines or law.engines
    return replace(law, engines=engines)
