"""Import: from what people already have to declarations that load, and a list of what was not understood."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tomli_w
from pydantic import ValidationError

from archonctl.deployment.problems import printable
from archonctl.deployment.schema import Endpoint
from archonctl.deployment.secrets import looks_secret
from archonctl.errors import UsageError
from archonctl.foreign.draft import Draft, draft
from archonctl.foreign.minimal import minimal
from archonctl.foreign.sources import find_starts
from archonctl.foreign.words import Unread

_ORDER = ("contract", "engine", "model", "host", "service", "container")


@dataclass(frozen=True, slots=True)
class Imported:
    """One declaration. ``text`` is its TOML with what was not understood as comments on top."""

    name: str
    source: str
    text: str
    data: Mapping[str, Any]
    unread: tuple[Unread, ...]


def import_starts(named: str, name: str = "", version: str = "", root: Path = Path("/")) -> tuple[Imported, ...]:
    """Every engine that is started by what was named (a file, a folder, a unit or a process).

    ``name`` is the endpoint's, where there is one start only. Raises UsageError ``import-nothing-found``,
    ``import-name-ambiguous``, ``import-unfit`` and those of the readers.
    """
    starts, left = find_starts(named, root)
    if name and len(starts) > 1:
        found = ", ".join(printable(start.name) for start in starts[:5])
        hint = "leave --name out, or name one file"
        raise UsageError("import-name-ambiguous", f"{len(starts)} engines are started there: {found}", hint=hint)
    drafts = [draft(start, version) for start in starts]
    taken: dict[str, int] = {}
    for each in drafts:
        each.name = name or each.name
        count = taken[each.name] = taken.get(each.name, 0) + 1
        each.name += f"-{count}" if count > 1 else ""
    return tuple(_imported(each, named, left if index == 0 else []) for index, each in enumerate(drafts))


def _imported(found: Draft, named: str, left: list[Unread]) -> Imported:
    data = minimal({key: found.data[key] for key in _ORDER if key in found.data})
    data["host"] = {"detect": True}
    data = {key: data[key] for key in _ORDER if key in data}
    source = found.path or f"process {named}"
    try:
        Endpoint.model_validate(data)
    except ValidationError as err:
        first = err.errors()[0]
        where = ".".join(map(str, first["loc"]))
        message = f"what is started there makes no declaration: {where}: {first['msg']}"
        raise UsageError("import-unfit", printable(message, 300), where=source) from None
    unread = tuple(replace(each, text=printable(_hidden(each.text))) for each in dict.fromkeys((*found.unread, *left)))
    return Imported(found.name, source, _text(data, source, unread), data, unread)


def _hidden(text: str) -> str:
    """Words that have the form of a key or token are not shown."""
    words = re.split(r"([\s=,]+)", text)
    return "".join("(hidden)" if looks_secret(word) else word for word in words)


def _text(data: Mapping[str, Any], source: str, unread: tuple[Unread, ...]) -> str:
    lines = [f"# Imported by archonctl from {_remark(printable(source, 200))}."]
    if unread:
        lines += ["#", "# Not understood, or left to you:"]
        lines += [f"#   {_remark(_said(each))}" for each in unread]
    return "\n".join(lines) + "\n\n" + re.sub(r"(?m)^(\s+)\"", r'    "', tomli_w.dumps(data))


def _said(each: Unread) -> str:
    place = f"line {each.line}: " if each.line else ""
    return f"{place}{each.text}: {each.reason}"


def _remark(text: str) -> str:
    """Fit for a comment of TOML, which takes no control character: one of them could end it, too."""
    return re.sub(r"[\x00-\x1f\x7f]", lambda found: f"\\x{ord(found[0]):02x}", text)
