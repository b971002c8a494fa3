"""Reading a stored release back: what was declared when it was rendered, checked against its digests."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from archonctl.deployment.load import LoadedEndpoint
from archonctl.deployment.schema import Endpoint
from archonctl.errors import HostRefusal
from archonctl.release.disk import read_plain
from archonctl.release.render import DECLARATION_FILE
from archonctl.release.values import MANIFEST, SCHEMA


@dataclass(frozen=True, slots=True)
class StoredRelease:
    """One release as it lies on disk. ``digest`` names it; ``loaded`` is its declaration."""

    folder: Path
    digest: str
    loaded: LoadedEndpoint
    files: Mapping[str, bytes]


def load_release(folder: Path) -> StoredRelease:
    """Read the release in ``folder`` (a link to it will do).

    Raises HostRefusal ``release-missing`` where there is none, ``release-damaged`` where a file is not what the
    manifest says.
    """
    place = Path(os.path.realpath(folder))
    try:
        manifest = read_plain(place / MANIFEST)
    except FileNotFoundError:
        hint = "archonctl apply NAME puts one there"
        raise HostRefusal("release-missing", "there is no release", where=str(folder), hint=hint) from None
    except OSError as err:
        raise _damaged(place / MANIFEST, err.strerror or str(err)) from None
    try:
        value = json.loads(manifest)
        schema, name, listed = value["schema"], str(value["endpoint"]), dict(value["files"])
        wanted = {str(file): str(row["sha256"]) for file, row in listed.items()}
    except (ValueError, TypeError, KeyError, RecursionError) as err:
        raise _damaged(place / MANIFEST, f"it is no manifest ({type(err).__name__})") from None
    if schema != SCHEMA:
        raise _damaged(place / MANIFEST, f"its schema is {str(schema)[:60]!a}, expected {SCHEMA}")
    files = {file: _checked(place, file, digest) for file, digest in wanted.items()}
    return StoredRelease(place, hashlib.sha256(manifest).hexdigest(), _declared(place, name, files), files)


def _declared(place: Path, name: str, files: Mapping[str, bytes]) -> LoadedEndpoint:
    where = place / DECLARATION_FILE
    try:
        value = json.loads(files[DECLARATION_FILE])
        endpoint, source = Endpoint.model_validate(value["declared"]), Path(str(value["source"]))
        origins = {str(key): str(origin) for key, origin in dict(value.get("origins", {})).items()}
    except (ValueError, TypeError, KeyError, RecursionError, ValidationError) as err:
        raise _damaged(where, f"it is no declaration ({type(err).__name__})") from None
    return LoadedEndpoint(endpoint, name, source, source.parent.parent, origins)


def _checked(place: Path, name: str, digest: str) -> bytes:
    if "/" in name or name in ("", ".", ".."):
        raise _damaged(place / MANIFEST, f"it lists {name[:60]!a}, which is no file name")
    try:
        content = read_plain(place / name)
    except OSError as err:
        raise _damaged(place / name, err.strerror or str(err)) from None
    actual = hashlib.sha256(content).hexdigest()
    if actual != digest:
        raise _damaged(place / name, f"its digest is {actual[:16]}, the manifest says {digest[:16]}")
    return content


def _damaged(path: Path, why: str) -> HostRefusal:
    hint = "archonctl apply NAME renders it anew"
    return HostRefusal("release-damaged", f"the release is not what it was: {why}", where=str(path), hint=hint)
