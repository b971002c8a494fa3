"""The declaration that a release was rendered from, as it is now: whether the next apply would take something else."""

from __future__ import annotations

from pathlib import Path

from archonctl.deployment.checks import walk_leaves
from archonctl.deployment.keys import dotted
from archonctl.deployment.load import LoadedEndpoint, load_endpoint
from archonctl.deployment.paths import PATH_KEYS
from archonctl.deployment.problems import describe
from archonctl.deployment.schema import Endpoint
from archonctl.deployment.toml_file import read_toml
from archonctl.errors import DeclarationError

_APART = ("kubernetes", "predict")
"""Tables of which nothing runs here."""


def declared_since(applied: LoadedEndpoint) -> tuple[tuple[str, str, str], ...]:
    """What the file says otherwise than ``applied`` did: key, as it was, as it is; both as people read them.

    Values that came from a flag or a variable do not count, nor does a file that is gone: it need not be kept. Paths
    count where the file has them absolute: what others mean depends on where an apply is called. Raises
    DeclarationError if the file cannot be read, or is no declaration any more.
    """
    try:
        now = load_endpoint(applied.path, {}, {}, applied.base_dir).endpoint
        written = read_toml(applied.path, "endpoint declaration").data
    except DeclarationError as err:
        if err.code == "declaration-not-found":
            return ()
        raise
    ours, theirs = _leaves(applied.endpoint), _leaves(now)
    found = []
    for key in dict.fromkeys([*ours, *theirs]):
        was, is_now = ours.get(key), theirs.get(key)
        if was != is_now and not _is_elsewhere(key, applied) and not _is_relative(key, written):
            found.append((key, describe(was), describe(is_now)))
    return tuple(found)


def _leaves(endpoint: Endpoint) -> dict[str, object]:
    value = endpoint.model_dump(exclude=set(_APART))
    return {dotted(loc): leaf for loc, leaf in walk_leaves(value)}


def _is_elsewhere(key: str, applied: LoadedEndpoint) -> bool:
    return applied.origins.get(key, "").startswith(("flag ", "environment "))


def _is_relative(key: str, written: dict[str, object]) -> bool:
    table, _, name = key.partition(".")
    if (table, name) not in PATH_KEYS:
        return False
    inside = written.get(table)
    text = inside.get(name) if isinstance(inside, dict) else None
    return isinstance(text, str) and not Path(text).is_absolute()
