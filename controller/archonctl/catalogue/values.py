"""What the catalogue says of a model and of its quants."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass

from archonctl.errors import UsageError
from archonctl.memory.interval import Interval
from archonctl.model.geometry import Geometry, ModelFacts, TensorBytes, TensorClass


@dataclass(frozen=True, slots=True)
class Quant:
    """One form in which a model's weights are published.

    ``bytes`` are those of its files, None where no public figure was found; ``size`` is then the estimate by the law of
    the quant and otherwise exact. ``tensors`` shares the best figure out over the classes. "" and () are unknown.
    """

    name: str
    engines: tuple[str, ...]
    bytes: int | None
    bytes_source: str
    revision: str
    sha256: tuple[str, ...]
    """Of each of its files, in their order."""
    repo: str
    file: str
    size: Interval
    tensors: tuple[TensorBytes, ...]


@dataclass(frozen=True, slots=True)
class CatalogueModel:
    """One model. ``params_active`` is what one token passes through; equal to ``params_total`` without experts.

    ``parameters`` are those of the language model by class, without prediction layers and towers of other senses.
    ``quants`` stand in the order in which they are preferred.
    """

    name: str
    repo: str
    geometry: Geometry
    parameters: Mapping[TensorClass, int]
    params_total: int
    params_active: int
    trained_context: int
    quants: tuple[Quant, ...]
    source: str
    origin: str
    """The catalogue that it is from: "shipped", or the path of the last file that said something of it."""
    aliases: tuple[str, ...] = ()

    def facts(self, quant: Quant) -> ModelFacts:
        """The model in this quant as the engines' laws take it; ``file_bytes`` is the best figure of ``size``."""
        return ModelFacts(
            path=f"hf:{quant.repo}" + (f"/{quant.file}" if quant.file else ""),
            format="gguf" if quant.engines == ("llamacpp",) else "safetensors",
            geometry=self.geometry,
            file_bytes=round(quant.size.best),
            tensor_bytes=quant.tensors,
            tensors=sum(part.tensors for part in quant.tensors),
        )


@dataclass(frozen=True, slots=True)
class Catalogue:
    """All models, shipped ones first, in the order of their files."""

    models: tuple[CatalogueModel, ...]

    def find(self, name: str) -> CatalogueModel:
        """The model of this name, alias or repository; letter case does not matter.

        Raises UsageError ``model-unknown``, with the names closest to it.
        """
        wanted = name.lower().removeprefix("hf:")
        for model in self.models:
            if wanted in _names(model):
                return model
        names = [each for model in self.models for each in _names(model)]
        close = difflib.get_close_matches(wanted, names, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(close)}?" if close else "archonctl models lists all of them"
        raise UsageError(
            "model-unknown", f"{name[:80]!r} is none of the {len(self.models)} models of the catalogue", hint=hint
        )


def _names(model: CatalogueModel) -> tuple[str, ...]:
    return (model.name.lower(), *(alias.lower() for alias in model.aliases), model.repo.lower())
