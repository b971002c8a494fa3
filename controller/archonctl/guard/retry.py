"""What an engine's refusal means (``retry.toml``), and the trim before the one more try."""

from __future__ import annotations

import functools
import json
import re
import tomllib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from importlib import resources
from typing import Literal

Kind = Literal["memory", "loading"]
Ask = Callable[[str, str], Awaitable[tuple[int, bytes]]]
"""Asks the engine: method and path, gives status and body. Raises OSError or TimeoutError."""

LOOKED_AT_BYTES = 64 << 10


@dataclass(frozen=True)
class Row:
    """One answer of one engine."""

    engine: str
    kind: Kind
    status: int
    pattern: re.Pattern[str]
    example: str
    source: str


@dataclass(frozen=True)
class Table:
    """``answers`` by engine and status; ``trims``: engine to method."""

    answers: tuple[Row, ...]
    trims: dict[str, str]

    def statuses(self, engine: str) -> frozenset[int]:
        """Those worth a look at the body."""
        return frozenset(row.status for row in self.answers if row.engine == engine)

    def kind(self, engine: str, status: int, body: bytes) -> Kind | None:
        """What an answer means; None for an ordinary one."""
        rows = [row for row in self.answers if row.engine == engine and row.status == status]
        message = error_message(body) if rows else ""
        return next((row.kind for row in rows if message and row.pattern.search(message)), None)

    def kind_of_event(self, engine: str, event: bytes) -> Kind | None:
        """What an error within a stream means, whose own status is 200."""
        message = error_message(event.partition(b"\n\n")[0]) if b'"error"' in event[:LOOKED_AT_BYTES] else ""
        rows = [row for row in self.answers if row.engine == engine]
        return next((row.kind for row in rows if message and row.pattern.search(message)), None)


@functools.cache
def table() -> Table:
    """``retry.toml``."""
    found = tomllib.loads(resources.files(__package__).joinpath("retry.toml").read_text(encoding="utf-8"))
    rows = [Row(**{**row, "pattern": re.compile(row["pattern"], re.DOTALL)}) for row in found["answer"]]
    return Table(tuple(rows), {engine: str(row["method"]) for engine, row in found["trim"].items()})


def error_message(body: bytes) -> str:
    """The message of an error object, the first event of a stream of events included; empty where there is none."""
    text = body[:LOOKED_AT_BYTES].strip().removeprefix(b"data:")
    try:
        value = json.loads(text)
        error = value.get("error", value)
        message = error.get("message", "") if isinstance(error, dict) else error
    except (ValueError, AttributeError, RecursionError):
        return ""
    return message if isinstance(message, str) else ""


async def trim(engine: str, ask: Ask) -> int:
    """Give back what is idle: how many times it was done. An engine that refuses it is no fault."""
    method = table().trims.get(engine, "")
    try:
        if method == "slots":
            return await _erase_idle_slots(ask)
        if method:
            verb, _, path = method.partition(" ")
            status, _body = await ask(verb, path)
            return int(status == 200)
    except (OSError, TimeoutError):
        pass
    return 0


async def _erase_idle_slots(ask: Ask) -> int:
    status, body = await ask("GET", "/slots")
    try:
        slots = json.loads(body) if status == 200 else []
        idle = [int(slot["id"]) for slot in slots if not slot["is_processing"]]
    except (ValueError, TypeError, KeyError):
        return 0
    done = 0
    for each in idle:
        status, _body = await ask("POST", f"/slots/{each}?action=erase")
        if status != 200:  # without --slot-save-path the first is refused as all are
            break
        done += 1
    return done
