"""A draft without what the declaration says anyway: a knob whose absence renders the same command line goes."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from pydantic import ValidationError

from archonctl.deployment.schema import Endpoint
from archonctl.engines import adapter
from archonctl.engines.base import CommandLine
from archonctl.errors import ArchonError

_TABLES = (("engine", "knobs"), ("engine", "env"), ("container",))
_KEPT = frozenset({"runtime", "options"})


def minimal(data: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The same tables without keys that change nothing of what is run; unchanged where it cannot be rendered."""
    data = copy.deepcopy(data)
    wanted = _rendered(data)
    if wanted is None:
        return data
    _drop_said_options(data)
    wanted = _rendered(data)
    for table, key in list(_candidates(data)):
        held = table.pop(key)
        if _rendered(data) != wanted:
            table[key] = held
    for name in ("knobs", "env"):
        if not data["engine"].get(name, True):
            del data["engine"][name]
    return {name: table for name, table in data.items() if table}


def _drop_said_options(data: dict[str, dict[str, Any]]) -> None:
    """Options that the rendered container has without them."""
    container = data.get("container", {})
    options = container.pop("options", [])
    line = _rendered(data)
    said = set(pairwise(line.argv)) if line else set()
    left = [option for option in options if tuple(option.split("=", 1)) not in said]
    if left:
        container["options"] = left


def _candidates(data: dict[str, dict[str, Any]]) -> Iterator[tuple[dict[str, Any], str]]:
    for path in _TABLES:
        table: Any = data
        for part in path:
            table = table.get(part, {})
        for key in list(table):
            if key not in _KEPT:
                yield table, key


def _rendered(data: dict[str, dict[str, Any]]) -> CommandLine | None:
    try:
        endpoint = Endpoint.model_validate(data)
        # an image that is not pinned yet would not be rendered: any digest will do to compare
        if endpoint.engine.image and "@sha256:" not in endpoint.engine.image:
            engine = endpoint.engine.model_copy(update={"image": f"x@sha256:{'0' * 64}"})
            endpoint = endpoint.model_copy(update={"engine": engine})
        line = adapter(endpoint.engine.kind).command(endpoint)
    except (ArchonError, ValidationError):
        return None
    # notes say what was derived and what declared, which is the difference that is looked for
    return CommandLine(line.argv, line.env, (), line.container)
