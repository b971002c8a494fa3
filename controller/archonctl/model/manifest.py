"""A declared manifest: what a capacity law needs of a model file whose own layout is not public.

A ``.rad`` file cannot be read from outside its engine, so the figures are written down once, each with the
source it came from, in one small TOML file that a declaration points to (``[model] manifest = ...``).
Everything is for one rank (one card); ``measured_at_tp`` says at how many ranks the figures hold.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from archonctl.deployment.problems import from_validation, raise_all
from archonctl.deployment.toml_file import TomlFile, read_toml
from archonctl.errors import DeclarationError
from archonctl.model.geometry import ModelFacts

Positive = Annotated[float, Field(gt=0)]
Said = Annotated[str, Field(min_length=3)]
"""Where a figure comes from. Never empty: a figure without a source is a guess."""


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class ManifestFile(_Strict):
    """The artefact: name, exact size and digest. ``quoted_mib`` is what people wrote, where that differs."""

    name: Annotated[str, Field(min_length=1)]
    architecture: str = ""
    bytes: Annotated[int, Field(gt=0)]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    quoted_mib: Positive | None = None
    source: Said


class PagedGroup(_Strict):
    """A group of paged caches, KiB a page by KV dtype. All groups share one token axis: rates add, tokens do not."""

    name: Annotated[str, Field(min_length=1)]
    kib_per_page: Annotated[dict[str, Positive], Field(min_length=1)]
    source: Said
    superseded_kib_per_page: dict[str, Positive] = {}
    """Readings that were believed once and corrected later; shown beside the law, never used by it."""
    superseded_source: str = ""


class Paged(_Strict):
    """The part of the pool that grows with tokens."""

    page_tokens: Annotated[int, Field(gt=0)]
    measured_at_tp: Annotated[int, Field(gt=0)]
    source: Said
    group: Annotated[tuple[PagedGroup, ...], Field(strict=False, min_length=1)]


class State(_Strict):
    """Recurrent state a sequence, whatever the KV dtype and however short the sequence."""

    mib_per_sequence: Positive
    source: Said


class Checkpoints(_Strict):
    """Snapshots of recurrent state for the prefix cache: slots in total, not a sequence."""

    slots: Annotated[int, Field(ge=0)]
    mib_per_slot: Positive
    source: Said


class HostResident(_Strict):
    """What stays in host memory whatever the split; once a host, not once a rank."""

    ngram_table_mib: Annotated[float, Field(ge=0)]
    source: Said


class Activation(_Strict):
    """The activation arena of one rank, measured at one token budget a step."""

    arena_mib: Positive
    at_batched_tokens: Annotated[int, Field(gt=0)]
    source: Said


class Speculation(_Strict):
    """Draft tokens a step where the declaration says ``auto``."""

    depth: Annotated[int, Field(ge=0)]
    source: Said


class Parallel(_Strict):
    """Rank counts that the container can and cannot be cut into."""

    serves: Annotated[tuple[int, ...], Field(strict=False, min_length=1)]
    refuses: Annotated[tuple[int, ...], Field(strict=False)] = ()
    source: Said


class Context(_Strict):
    """Context length. ``trained`` is the header's figure; leave it out rather than guess it."""

    trained: Annotated[int, Field(gt=0)] | None = None
    largest_served: Annotated[int, Field(gt=0)] | None = None
    source: Said


class Hidden(_Strict):
    """Elements of the residual stream, and the bytes of one (the all-reduce message of one row)."""

    size: Annotated[int, Field(gt=0)]
    bytes_per_element: Annotated[int, Field(gt=0)] = 2
    source: Said


class RadManifest(_Strict):
    """Everything a capacity law asks of a model file that only its engine can read."""

    file: ManifestFile
    paged: Paged
    state: State
    checkpoints: Checkpoints
    host: HostResident
    activation: Activation
    context: Context
    hidden: Hidden
    speculation: Speculation | None = None
    tensor_parallel: Parallel | None = None


def read_manifest(path: str | Path) -> ModelFacts:
    """Facts of a model from its manifest: ``format`` "manifest", ``rad`` filled, no geometry and no tensors.

    Raises DeclarationError with ``file:line`` and every mistake at once: the codes of ``deployment.toml_file``
    (not there, empty, too large, no TOML) and of ``deployment.problems`` (an unknown key, a wrong type, a missing
    figure or source), and ``manifest-contradicts`` where the paged groups do not price the same dtypes.
    """
    file = read_toml(Path(path), "model manifest")
    try:
        manifest = RadManifest.model_validate(file.data)
    except ValidationError as err:
        raise_all(from_validation(err, RadManifest, file.place))
        raise
    raise_all(_contradictions(manifest, file))
    reason = "a .rad file's layers are not public; the manifest says what the law needs"
    return ModelFacts(file.shown, "manifest", None, manifest.file.bytes, rad=manifest, geometry_reason=reason)


def _contradictions(manifest: RadManifest, file: TomlFile) -> list[DeclarationError]:
    """All groups must price the same dtypes (superseded ones included), else a sum would leave one of them out."""
    first, problems = manifest.paged.group[0], []
    for number, group in enumerate(manifest.paged.group):
        loc = ("paged", "group", number)
        if set(group.kib_per_page) != set(first.kib_per_page):
            mine, others = _names(group.kib_per_page), _names(first.kib_per_page)
            message = f"group {group.name} prices {mine}, group {first.name} prices {others}"
            problems.append(_contradiction(message, file.place((*loc, "kib_per_page"))))
        if strange := set(group.superseded_kib_per_page) - set(group.kib_per_page):
            message = f"group {group.name} has a superseded figure for {_names(strange)}, which it does not price"
            problems.append(_contradiction(message, file.place((*loc, "superseded_kib_per_page"))))
    return problems


def _contradiction(message: str, where: str) -> DeclarationError:
    return DeclarationError(
        "manifest-contradicts", message, where=where, hint="every paged group needs a figure for every dtype"
    )


def _names(dtypes: Iterable[str]) -> str:
    return " and ".join(sorted(dtypes))
