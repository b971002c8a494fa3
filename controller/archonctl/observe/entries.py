"""The whole record of an endpoint in one order of time: its history, and every verdict that is kept of it.

Two stores, read and never written here: ``history.jsonl`` and ``verdicts/`` below the endpoint's state folder.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from archonctl.errors import UsageError
from archonctl.service.history import History, Record
from archonctl.service.installed import Installed
from archonctl.service.verdict_store import NO_RELEASE, kept, read_value

SCHEMA = "archonctl.history-entry/1"
_LAST_S = 253_402_300_800
"""The year 10000 in Unix time: what is not before it is no time, but a damaged file."""
_MOST_TOKENS = 1 << 63


@dataclass(frozen=True, slots=True)
class Entry:
    """One event of the history, or one verdict. ``at`` is Unix time; tokens are None where nothing says how many.

    ``event`` is the history's word, or the verb that took the verdict. ``live_tokens`` is the lower bound of what the
    boot log of that very start said. ``file`` is where it was read.
    """

    at: float
    endpoint: str
    event: str
    release: str
    verdict: str
    file: Path
    contract_tokens: int | None = None
    live_tokens: int | None = None
    predictions: tuple[Mapping[str, Any], ...] = ()
    reasons: tuple[str, ...] = ()
    before: str = ""
    transaction: str = ""
    invocation: str = ""
    user: str = ""
    archonctl: str = ""
    facts: Mapping[str, str | int] = field(default_factory=dict)
    is_verdict: bool = False

    def scored(self, score: str) -> int:
        """How many predictions came to this."""
        return sum(each.get("score") == score for each in self.predictions)


@dataclass(frozen=True, slots=True)
class Entries:
    """Oldest first. ``unreadable`` counts lines and files that could not be read."""

    found: tuple[Entry, ...]
    unreadable: int = 0
    passed_over_bytes: int = 0


def entries(installed: Installed, history: History | None = None) -> Entries:
    """Everything that is kept of an endpoint. Raises HostRefusal ``state-unreadable``."""
    history = history if history is not None else installed.history()
    verdicts, broken = _verdicts(installed)
    by_start = {each.invocation: each for each in verdicts if each.invocation}
    events = [_event(installed, each, by_start.get(each.invocation)) for each in history.records]
    found = sorted([*events, *verdicts], key=lambda each: (each.at, each.is_verdict))
    return Entries(tuple(found), history.unreadable + broken, history.passed_over_bytes)


def _event(installed: Installed, record: Record, verdict: Entry | None) -> Entry:
    """What was measured belongs to the start that an event judged."""
    about = verdict if verdict is not None and record.verdict else None
    return Entry(
        record.at,
        installed.name,
        record.event,
        record.release,
        record.verdict,
        installed.history_file,
        about.contract_tokens if about else None,
        about.live_tokens if about else None,
        about.predictions if about else (),
        record.reasons,
        record.before,
        record.transaction,
        record.invocation,
        record.user,
        record.archonctl,
        record.facts,
    )


def _verdicts(installed: Installed) -> tuple[list[Entry], int]:
    found, broken = [], 0
    for each in reversed(kept(installed.folder)):
        value: object = None
        with contextlib.suppress(UsageError):
            value = read_value(each.path)
        if not isinstance(value, dict) or not isinstance(value.get("verdict"), str):
            broken += 1
            continue
        at = value.get("at")
        found.append(
            Entry(
                float(at) if isinstance(at, int | float) and 0 <= at < _LAST_S else _time_of(each.at),
                installed.name,
                each.by,
                "" if each.release == NO_RELEASE else each.release,
                value["verdict"],
                each.path,
                contract_tokens(value),
                logged_tokens(value),
                tuple(_predictions(value)),
                tuple(map(str, _list(value.get("reasons")))),
                invocation=_text(value.get("invocation")),
                archonctl=_text(value.get("archonctl")),
                is_verdict=True,
            )
        )
    return found, broken


def _time_of(stamp: str) -> float:
    return datetime.strptime(stamp, "%Y%m%dT%H%M%S.%f%z").timestamp()


def contract_tokens(value: Mapping[str, object]) -> int | None:
    """What the endpoint promised when a verdict was taken; None where the verdict did not keep it."""
    contract = value.get("contract")
    seqs, length = (contract.get("seqs"), contract.get("len")) if isinstance(contract, dict) else (None, None)
    return _sound(seqs * length) if isinstance(seqs, int) and isinstance(length, int) else None


def logged_tokens(value: Mapping[str, object]) -> int | None:
    """The lower bound of what a boot log said, as a stored verdict took it."""
    probe = value.get("probe")
    facts = probe.get("facts") if isinstance(probe, dict) else None
    tokens = facts.get("kv_tokens_logged") if isinstance(facts, dict) else None
    return _sound(tokens) if isinstance(tokens, int) else None


def _sound(tokens: int) -> int | None:
    return tokens if 0 <= tokens < _MOST_TOKENS else None


def _predictions(value: Mapping[str, object]) -> Iterator[Mapping[str, Any]]:
    probe = value.get("probe")
    for row in _list(probe.get("predictions") if isinstance(probe, dict) else None):
        if isinstance(row, dict):
            yield {name: each for name, each in row.items() if not isinstance(each, float) or math.isfinite(each)}


def _list(value: object) -> Sequence[object]:
    return value if isinstance(value, list) else ()


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def entry_json(entry: Entry) -> dict[str, Any]:
    """One line of the export under its published schema, ``docs/schemas/history-entry-1.json``."""
    return {
        "schema": SCHEMA,
        "at": entry.at,
        "endpoint": entry.endpoint,
        "kind": "verdict" if entry.is_verdict else "event",
        "event": entry.event,
        "release": entry.release or None,
        "verdict": entry.verdict or None,
        "contract_tokens": entry.contract_tokens,
        "live_tokens": entry.live_tokens,
        "predictions": [dict(each) for each in entry.predictions],
        "reasons": list(entry.reasons),
        "before": entry.before or None,
        "transaction": entry.transaction or None,
        "invocation": entry.invocation or None,
        "user": entry.user or None,
        "archonctl": entry.archonctl or None,
        "facts": dict(entry.facts),
        "file": str(entry.file),
    }
