"""Every verdict on an endpoint, kept with the release that it is about: ``verdicts/<release>/<when>-<who>.json``."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from archonctl.errors import HostRefusal, NoEvidence, UsageError
from archonctl.probe.stored import Stored, read_stored
from archonctl.service.state import atomic_write

FOLDER = "verdicts"
KEPT = 64
"""Verdicts that are kept of each release; the oldest go first."""
_LIMIT_BYTES = 16 << 20
_NAME = re.compile(r"(?P<at>\d{8}T\d{6}\.\d{6}Z)-(?P<by>[a-z]+)\.json")
_RELEASE = re.compile(r"[0-9a-f]{8,64}|none")
NO_RELEASE = "none"
"""The folder for verdicts on something whose release is not known."""


@dataclass(frozen=True, slots=True)
class Kept:
    """One stored verdict: its file, its release (a folder's name), when and by which verb."""

    path: Path
    release: str
    at: str
    by: str


def keep(folder: Path, release: str, by: str, value: Mapping[str, object], at: float) -> Path:
    """Write one verdict below an endpoint's state ``folder``, and let go of the oldest. Raises OSError."""
    into = folder / FOLDER / (release if _RELEASE.fullmatch(release) else NO_RELEASE)
    into.mkdir(parents=True, exist_ok=True, mode=0o755)
    stamp = datetime.fromtimestamp(at, UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    path = into / f"{stamp}-{by}.json"
    atomic_write(path, (json.dumps(value, indent=1, sort_keys=True) + "\n").encode(), 0o644)
    for old in _of(into)[KEPT:]:
        with contextlib.suppress(OSError):
            old.path.unlink()
    return path


def kept(folder: Path, release: str = "") -> list[Kept]:
    """What is stored of an endpoint, newest first; of one release if its name, or a beginning of it, is given."""
    try:
        names = os.listdir(folder / FOLDER)  # noqa: PTH208
    except OSError:
        return []
    wanted = [name for name in names if _RELEASE.fullmatch(name) and _same(name, release)]
    found = [each for name in wanted for each in _of(folder / FOLDER / name)]
    return sorted(found, key=lambda each: (each.at, each.release), reverse=True)


def _same(name: str, release: str) -> bool:
    return not release or name.startswith(release[:16]) or release.startswith(name)


def _of(folder: Path) -> list[Kept]:
    try:
        names = os.listdir(folder)  # noqa: PTH208
    except OSError:
        return []
    matches = [(name, match) for name in names if (match := _NAME.fullmatch(name))]
    found = [Kept(folder / name, folder.name, match["at"], match["by"]) for name, match in matches]
    return sorted(found, key=lambda each: each.at, reverse=True)


def latest(folder: Path, endpoint: str, release: str = "") -> tuple[Stored, Kept]:
    """The newest verdict that can be read. Raises NoEvidence ``verdict-missing``, UsageError ``verdict-unreadable``."""
    found = kept(folder, release)
    if not found:
        of = f" of release {release}" if release else ""
        why = f"no verdict on {endpoint}{of} is stored"
        hint = f"archonctl up {endpoint}, archonctl apply {endpoint} or archonctl probe {endpoint} makes one"
        raise NoEvidence("verdict-missing", why, where=str(folder / FOLDER), hint=hint)
    return load(found[0].path), found[0]


def load(path: Path) -> Stored:
    """One stored verdict, of whatever readable schema. Raises UsageError ``verdict-unreadable``."""
    return read_stored(read_value(path), str(path))


def read_value(path: Path) -> object:
    """What a file of the store holds, unjudged. Raises UsageError ``verdict-unreadable``."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            raw = file.read(_LIMIT_BYTES + 1)
        if len(raw) > _LIMIT_BYTES:
            raise ValueError(f"more than {_LIMIT_BYTES:,} bytes")
        value: object = json.loads(raw)
    except (OSError, ValueError, RecursionError) as err:
        why = (err.strerror if isinstance(err, OSError) else "") or f"{type(err).__name__} {err}"[:200]
        raise UsageError("verdict-unreadable", f"not a stored verdict: {why}", where=str(path)) from None
    return value


def keep_or_say(folder: Path, release: str, by: str, value: Mapping[str, object], at: float) -> str:
    """As ``keep``; where the disk does not take it, why, in words: the verdict itself does not depend on it."""
    try:
        keep(folder, release, by, value, at)
    except (OSError, HostRefusal) as err:
        return f"the verdict is not kept: {err}"
    return ""
