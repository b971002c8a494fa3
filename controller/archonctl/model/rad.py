"""What a capacity law needs of a ``.rad`` file, as values: the schema of a declared manifest.

A ``.rad`` file cannot be read from outside its engine, so the figures are written down once, each with the
source it came from, in one small TOML file that a declaration points to (``[model] manifest = ...``).
Everything is for one rank (one card); ``measured_at_tp`` says at how many ranks the figures hold.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

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
