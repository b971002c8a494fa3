"""Seen boots of the version that is moved to: from the declaration itself, its neighbours, or a file that is named."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from archonctl.deployment.load import LoadedEndpoint, load_endpoint
from archonctl.deployment.schema import Boot
from archonctl.errors import ArchonError

_MOST_NEIGHBOURS = 200


def boots_for(loaded: LoadedEndpoint, to: str, named: Path | None) -> tuple[tuple[Boot, ...], str]:
    """The boots of version ``to``, and the file they are from (empty: the declaration's own, or none).

    ``named`` is a declaration whose boots are taken. Else the first neighbour in the same folder that runs the same
    model with the same engine counts. Raises DeclarationError for a named file that is no declaration.
    """
    own = tuple(boot for boot in loaded.endpoint.boot if boot.engine_version == to)
    if named is not None:
        other = load_endpoint(named, {}, {}).endpoint
        return tuple(boot for boot in other.boot if boot.engine_version == to), str(named)
    if own:
        return own, ""
    for path in _neighbours(loaded.path):
        try:
            other = load_endpoint(path, {}, {}).endpoint
        except ArchonError:  # a neighbour that does not load is none of this endpoint's business
            continue
        same = (other.engine.kind, other.model.path) == (loaded.endpoint.engine.kind, loaded.endpoint.model.path)
        boots = tuple(boot for boot in other.boot if boot.engine_version == to)
        if same and boots:
            return boots, path.name
    return (), ""


def _neighbours(path: Path) -> Iterator[Path]:
    names = sorted(name for name in os.listdir(path.parent) if name.endswith(".toml") and name != path.name)  # noqa: PTH208
    yield from (path.parent / name for name in names[:_MOST_NEIGHBOURS])
