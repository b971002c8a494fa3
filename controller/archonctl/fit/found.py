"""A model that a person names: of the catalogue, or read from a file, a folder or the network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from archonctl.catalogue.read import parameters_of, quant_name
from archonctl.catalogue.values import Catalogue, CatalogueModel, Quant
from archonctl.deployment.remote import is_remote
from archonctl.errors import ModelError
from archonctl.memory.interval import Interval
from archonctl.model.geometry import ModelFacts
from archonctl.model.gguf import SPLIT_NAME
from archonctl.model.inspect import inspect_model

MOST_VARIANTS = 24
"""GGUF files of one folder or repository that are read: each takes some megabytes of header."""


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
    parameters = parameters_of(read[0])
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
        name=quant_name(facts),
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
