"""What one version of an engine lists: the harvest of one ``--help`` or one set of argument definitions.

A snapshot is one JSON object, a file of them one a line.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

from archonctl.engines.knobs.row import KnobType
from archonctl.errors import UsageError

_STRICT = ConfigDict(extra="forbid")


@dataclass(frozen=True, slots=True)
class Seen:
    """One flag as one version lists it; the columns are those of ``row.Knob``.

    ``default`` is any JSON value; ``help`` may be the whole text; ``refused`` is what the parser says where it knows
    the name only to refuse it. No ``names`` and an ``env``: a variable without a flag.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    names: tuple[str, ...] = ()
    type: KnobType = "str"
    negatives: tuple[str, ...] = ()
    nargs: int | str | None = None
    choices: tuple[Any, ...] | None = None
    words: tuple[str, ...] = ()
    min: int | float | None = None
    max: int | float | None = None
    default: Any = None
    env: str | None = None
    hint: str | None = None
    help: str | None = None
    deprecated: str | bool | None = None
    hidden: bool = False
    refused: str | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything that one version lists, in its order."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    engine: str
    version: str
    source: str
    knobs: tuple[Seen, ...]


def read_snapshots(lines: Iterable[str], name: str) -> tuple[Snapshot, ...]:
    """Snapshots of a file called ``name``, one a line; raises UsageError ``snapshot-invalid`` with the line."""
    adapter = TypeAdapter(Snapshot)
    found = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            found.append(adapter.validate_json(line))
        except ValidationError as err:
            first = err.errors()[0]
            message = f"{'.'.join(map(str, first['loc']))}: {first['msg']}" if first["loc"] else first["msg"]
            raise UsageError("snapshot-invalid", message, where=f"{name}:{number}") from None
    return tuple(found)


def as_line(snapshot: Snapshot) -> str:
    """A snapshot as one line of JSON, without what is empty."""
    rows = [{column: cell for column, cell in asdict(row).items() if _said(column, cell)} for row in snapshot.knobs]
    head = {"engine": snapshot.engine, "version": snapshot.version, "source": snapshot.source}
    return json.dumps({**head, "knobs": rows}, ensure_ascii=False)


def _said(column: str, cell: object) -> bool:
    """False for what a row need not say; a default of false is one."""
    return not (cell is None or cell in ((), "")) and (cell is not False or column == "default")
