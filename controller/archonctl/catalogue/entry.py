"""A row for a catalogue from what a repository's own files say; what they do not say is refused, never guessed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from archonctl.catalogue.layers import row_of
from archonctl.catalogue.quants import quant_laws
from archonctl.catalogue.read import parameters_of, quant_name
from archonctl.catalogue.values import CatalogueModel
from archonctl.errors import ModelError
from archonctl.model.geometry import Geometry, ModelFacts

_ALSO = ("INT8", "FP16", "F32", "BITSANDBYTES")
"""Names of checkpoints that an engine runs, beside those with a law in quants.toml."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A row as TOML values; of a model that the catalogue has, the new quant alone (``is_new`` False)."""

    name: str
    row: Mapping[str, object]
    quant: str
    is_new: bool


def entry_of(facts: ModelFacts, repo: str, file: str, revision: str, name: str, known: CatalogueModel | None) -> Entry:
    """The row of a repository's model, under ``name``.

    Raises ModelError ``model-architecture-unknown``, ``catalogue-cannot-know``, ``catalogue-uneven-layers`` and, where
    the layers are not those of the model that is ``known`` by that name, ``catalogue-other-model``.
    """
    geometry = facts.require_geometry()
    if not facts.tensors:
        raise _unknown(facts.path, "the repository has no weights, so their size is not known")
    label = quant_name(facts)
    quant: dict[str, object] = {"name": label, "engines": _engines(facts, label), "repo": repo}
    quant |= {key: value for key, value in (("file", file), ("revision", revision)) if value}
    quant |= {"bytes": facts.file_bytes, "source": f"sizes of the files of {facts.path}"}
    if known is not None:
        _same_layers(geometry, known, facts.path)
        return Entry(known.name, {"name": known.name, "quant": [quant]}, label, is_new=False)
    for what, value in (("context", geometry.trained_context), ("vocabulary", geometry.vocab)):
        if not value:
            raise _unknown(facts.path, f"its files do not say how large its {what} is")
    row: dict[str, object] = {"name": name, "repo": repo, "trained_context": geometry.trained_context}
    row |= {"source": f"{facts.path}, read at {revision}" if revision else facts.path}
    row |= {"geometry": row_of(geometry, facts.path), "parameters": parameters_of(facts)}
    return Entry(name, {**row, "quant": [quant]}, label, is_new=True)


def _engines(facts: ModelFacts, label: str) -> list[str]:
    if facts.format == "gguf":
        return ["llamacpp"]
    if label not in quant_laws() and label not in _ALSO:
        raise _unknown(facts.path, f"which engine runs weights of the kind {label} is not known here")
    return ["vllm"] if label == "BITSANDBYTES" else ["vllm", "sglang"]


def _same_layers(geometry: Geometry, known: CatalogueModel, where: str) -> None:
    if [_kept(geometry), geometry.hidden] != [_kept(known.geometry), known.geometry.hidden]:
        message = f"its layers are not those of {known.name} in the catalogue ({known.repo})"
        raise ModelError("catalogue-other-model", message, where=where, hint="give it a name of its own: --name NAME")


def _kept(geometry: Geometry) -> list[tuple[str, int, int, int]]:
    """What each layer that serves keeps; a GGUF also lists layers that predict. A chunk is a window there."""
    serving = geometry.layers[: len(geometry.layers) - geometry.nextn_layers]
    kinds = {"chunked": "sliding"}
    return [(kinds.get(each.attention, each.attention), each.k_width, each.v_width, each.window) for each in serving]


def _unknown(where: str, message: str) -> ModelError:
    hint = "write the entry by hand, with a source for each figure (docs/models.md)"
    return ModelError("catalogue-cannot-know", message, where=where, hint=hint)
