"""Ways out of a shortage, for people and for tools."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import get_args

from archonctl.cli.output import Output
from archonctl.errors import UsageError
from archonctl.memory.demand import MemoryClass
from archonctl.memory.interval import MIB
from archonctl.plan.relief import Question, Relief, Way

SCHEMA = "archonctl.plan-relief/1"
_ASKED = re.compile(r"(?P<cls>[a-z_]+)(=(?P<mib>\d{1,9}))?(@(?P<where>host|\d{1,3}))?", re.ASCII)
_POOL = "pool"


def question_of(text: str) -> Question:
    """``kv_cache=512@0``. Raises UsageError ``command-line-invalid``."""
    found = _ASKED.fullmatch(text.strip())
    word = found["cls"] if found else ""
    cls = next((each for each in get_args(MemoryClass) if each == word), None)
    if found is None or (cls is None and word != _POOL) or (word == _POOL and found["where"]):
        known = ", ".join((*get_args(MemoryClass), _POOL))
        raise UsageError(
            "command-line-invalid",
            f"--relieve {text[:60]!r}: a class of memory is wanted, such as kv_cache=512@0",
            hint=f"classes: {known}; MiB and the card, or @host, may be left out",
        )
    where = found["where"]
    return Question(
        cls or "kv_cache",
        int(found["mib"]) * MIB if found["mib"] and int(found["mib"]) else None,
        int(where) if where and where != "host" else None,
        word == _POOL,
        "host" if where == "host" else "device" if where else None,
    )


def relief_json(endpoint: str, relief: Relief) -> dict[str, object]:
    """The answer of ``plan --relieve``."""
    return {"schema": SCHEMA, "endpoint": endpoint, **relief_value(relief)}


def relief_value(relief: Relief) -> dict[str, object]:
    """One shortage and its ways out."""
    asked = relief.question
    return {
        "class": asked.cls,
        "pool": asked.pool,
        "scope": relief.scope,
        "card": asked.card,
        "short_bytes": asked.short_bytes,
        "at_most": asked.at_most,
        "sought_bytes": relief.sought_bytes,
        "runbook": relief.runbook,
        "ways": [_way(way) for way in relief.ways],
        "notes": list(relief.notes),
    }


def _way(way: Way) -> dict[str, object]:
    return {
        "text": way.text,
        "set": dict(way.set),
        "gives_bytes": way.gives_bytes,
        "effect": way.effect,
        "costs": way.costs or None,
        "quality": way.quality or None,
    }


def relief_text(relief: Relief, out: Output, *, endpoint: str = "") -> str:
    """The shortage, then a line a way."""
    head = f"{endpoint}: {relief.text}" if endpoint else relief.text
    lines = [out.paint(head, "bold"), *(f"  {note}" for note in relief.notes)]
    for way in relief.ways:
        lines += _lines(way, out)
    return "\n".join([*lines, f"  archonctl explain {relief.runbook}"])


def _lines(way: Way, out: Output) -> Iterator[str]:
    effect = {"space": "gives back", "pool": "adds to the pool", "need": "asks for less:", "offload": "adds to it"}[
        way.effect
    ]
    price = "; ".join(part for part in (way.costs, way.quality) if part)
    yield f"  {out.paint(way.text, 'cyan')}  {effect} {way.gives_bytes / MIB:,.0f} MiB; costs {price}"
    yield "      " + "  ".join(f"--set {key}={value}" for key, value in way.set.items())
