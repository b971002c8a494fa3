"""One change of a running endpoint, written down before each of its steps: ``apply.json``.

The file is there exactly while an endpoint is between two releases. It is written whole (temporary file, fsync,
rename, fsync of the folder), so that whoever comes after a kill or a power cut reads one step or the next. Every step
can be taken again, so it does not matter on which side of the step that is.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, get_args

from archonctl.errors import HostRefusal
from archonctl.service.state import atomic_write

SCHEMA = "archonctl.transaction/1"
FILE = "apply.json"
_LIMIT_BYTES = 1 << 20

Phase = Literal["placing", "stopping", "switching", "starting", "verifying", "undoing"]
WORDS: dict[Phase, str] = {
    "placing": "before the engine was stopped",
    "stopping": "while the old engine was being stopped",
    "switching": "after the old engine was stopped, before the new one was started",
    "starting": "while the new engine was being started",
    "verifying": "while the new engine was being verified",
    "undoing": "on the way back to the release before",
}
"""Where a change stopped, for people."""


@dataclass(frozen=True, slots=True)
class Transaction:
    """A change from ``old`` to ``new`` (digests; ``old`` is empty for a first one), and how far it is.

    ``back`` is the release to return to if the new one does not hold; empty: there is none. ``drop_in`` is what was
    placed before, None where nothing was. ``dependants`` are the units to start again at the end. ``reasons`` say why
    it is being undone.
    """

    id: str
    endpoint: str
    phase: Phase
    new: str
    old: str = ""
    back: str = ""
    was_running: bool = False
    drop_in: str | None = None
    dependants: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    by_hand: bool = False
    """True for a rollback that a person asked for."""
    pid: int = 0
    began_at: float = 0.0

    def at(self, phase: Phase, *reasons: str) -> Transaction:
        """The same change one step on."""
        return replace(self, phase=phase, reasons=(*self.reasons, *reasons), pid=os.getpid())


def load(folder: Path) -> Transaction | None:
    """The half-done change of an endpoint, if there is one.

    Raises HostRefusal ``state-unreadable`` for a file that is not ours: nobody can tell then what runs.
    """
    path = folder / FILE
    try:
        with path.open("rb") as file:
            raw = file.read(_LIMIT_BYTES)
    except FileNotFoundError:
        return None
    except NotADirectoryError:
        return None
    except OSError as err:
        raise _unreadable(path, err.strerror or str(err)) from None
    try:
        return _checked(json.loads(raw))
    except (ValueError, TypeError, RecursionError) as err:
        raise _unreadable(path, str(err)) from None


def _checked(value: Any) -> Transaction:
    if not isinstance(value, dict) or value.get("schema") != SCHEMA:
        raise ValueError(f"not {SCHEMA}")
    known = {f.name: value[f.name] for f in fields(Transaction) if f.name in value}
    for name in ("dependants", "reasons"):
        known[name] = tuple(map(str, known.get(name, ())))
    found = Transaction(**known)
    if found.phase not in get_args(Phase):
        raise ValueError(f"unknown phase {found.phase!r}")
    if not all(isinstance(text, str) for text in (found.id, found.endpoint, found.new, found.old, found.back)):
        raise ValueError("wrong types")
    return found


def save(folder: Path, change: Transaction) -> None:
    """Write the step down. Raises HostRefusal ``state-unwritable``."""
    text = json.dumps({"schema": SCHEMA, **asdict(change)}, indent=2) + "\n"
    try:
        atomic_write(folder / FILE, text.encode(), 0o644)
    except OSError as err:
        raise HostRefusal("state-unwritable", err.strerror or str(err), where=str(folder / FILE)) from None


def clear(folder: Path) -> None:
    """The change is done, or undone. Raises HostRefusal ``state-unwritable``."""
    try:
        (folder / FILE).unlink(missing_ok=True)
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as err:
        raise HostRefusal("state-unwritable", err.strerror or str(err), where=str(folder / FILE)) from None


def _unreadable(path: Path, why: str) -> HostRefusal:
    return HostRefusal(
        "state-unreadable", f"cannot tell how far a change went: {why}", where=str(path), hint="look at it, remove it"
    )
