"""A declared manifest: what a capacity law needs of a model file whose own layout is not public.

A ``.rad`` file cannot be read from outside its engine, so the figures are written down once, each with the
source it came from, in one small TOML file that a declaration points to (``[model] manifest = ...``).
Everything is for one rank (one card); ``measured_at_tp`` says at how many ranks the figures hold.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from archonctl.errors import DeclarationError
from archonctl.model.geometry import ModelFacts

Positive = Annotated[float, Field(gt=0)]
Said = Annotated[str, Field(min_length=3)]
"""Where a figure comes from. Never empty: a figure without a source is a guess."""

_MAX_BYTES = 1024 * 1024


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

    Raises DeclarationError ``manifest-missing`` (not there, not readable, not a file) and ``manifest-invalid``
    (not TOML, an unknown key, a wrong type, a missing figure or source), with ``file:line`` where there is one.
    """
    place = Path(path)
    text = _read_text(place)
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as err:
        found = re.search(r"at line (\d+)", str(err))
        where = f"{place}:{found[1]}" if found else str(place)
        raise DeclarationError("manifest-invalid", f"not valid TOML: {err}", where=where) from None
    except RecursionError:
        raise DeclarationError("manifest-invalid", "nested too deep to be a manifest", where=str(place)) from None
    try:
        manifest = RadManifest.model_validate(table)
    except ValidationError as err:
        raise _complaint(err, text, place) from None
    _check_dtypes(manifest, text, place)
    return ModelFacts(str(place), "manifest", None, manifest.file.bytes, rad=manifest)


def _read_text(place: Path) -> str:
    try:
        if not place.is_file():
            raise DeclarationError(
                "manifest-missing",
                f"no manifest at {place}",
                where=str(place),
                hint="[model] manifest names a TOML file such as env/models/qwen3.8-next-flash.toml",
            )
        if (size := place.stat().st_size) > _MAX_BYTES:
            raise DeclarationError(
                "manifest-invalid",
                f"{size:,} bytes are too many for a manifest, {_MAX_BYTES:,} at most",
                where=str(place),
                hint="is [model] manifest the model file itself?",
            )
        return place.read_text(encoding="utf-8")
    except OSError as err:
        raise DeclarationError("manifest-missing", f"cannot read: {err.strerror}", where=str(place)) from None
    except ValueError:
        raise DeclarationError("manifest-invalid", "not UTF-8 text", where=str(place)) from None


def _check_dtypes(manifest: RadManifest, text: str, place: Path) -> None:
    """All groups must price the same dtypes (superseded ones included), else a sum would leave one of them out."""
    first = manifest.paged.group[0]
    for number, group in enumerate(manifest.paged.group):
        if strange := set(group.superseded_kib_per_page) - set(group.kib_per_page):
            raise DeclarationError(
                "manifest-invalid",
                f"group {group.name} has a superseded figure for {_names(strange)}, which it does not price",
                where=f"{place}:{line_of(text, ('paged', 'group', number, 'superseded_kib_per_page'))}",
            )
        if set(group.kib_per_page) != set(first.kib_per_page):
            raise DeclarationError(
                "manifest-invalid",
                f"group {group.name} prices {_names(group.kib_per_page)}, "
                f"group {first.name} prices {_names(first.kib_per_page)}",
                where=f"{place}:{line_of(text, ('paged', 'group', number, 'kib_per_page'))}",
                hint="every paged group needs a figure for every dtype",
            )


def _names(dtypes: Iterable[str]) -> str:
    return " and ".join(sorted(dtypes))


def _complaint(err: ValidationError, text: str, place: Path) -> DeclarationError:
    """The first fault with its line; the others in the same sentence, so that one run shows them all."""
    faults = []
    lines = []
    for fault in err.errors(include_url=False):
        key = ".".join(str(part) for part in fault["loc"])
        said = "unknown key" if fault["type"] == "extra_forbidden" else fault["msg"][0].lower() + fault["msg"][1:]
        got = "" if fault["type"] in ("missing", "extra_forbidden") else f", got {fault['input']!r:.60}"
        lines.append(line_of(text, fault["loc"]))
        faults.append(f"{key}: {said}{got}")
    return DeclarationError("manifest-invalid", "; ".join(faults), where=f"{place}:{lines[0]}")


def line_of(text: str, loc: tuple[int | str, ...]) -> int:
    """Line (from 1) of a TOML key, or of the deepest table on the way to it that the text has; else 1.

    Good enough for messages: it reads headers and ``key =`` lines, and does not parse values.
    """
    here: tuple[int | str, ...] = ()
    seen: dict[str, int] = {}
    best, depth = 1, 0
    for number, raw in enumerate(text.splitlines(), start=1):
        line = raw.strip()
        if header := re.match(r"(\[\[?)\s*([^\]]+?)\s*\]", line):
            here = tuple(part.strip().strip("\"'") for part in header[2].split("."))
            if header[1] == "[[":
                count = seen[header[2]] = seen.get(header[2], -1) + 1
                here = (*here, count)
            key = here
        elif found := re.match(r"([A-Za-z0-9_.\"'-]+)\s*=", line):
            key = (*here, *(part.strip("\"'") for part in found[1].split(".")))
        else:
            continue
        if len(key) > depth and key == loc[: len(key)]:
            best, depth = number, len(key)
    return best
