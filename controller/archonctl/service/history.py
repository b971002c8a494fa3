"""What became of every release of an endpoint: ``history.jsonl``, one event a line, only ever added to.

Each line is on disk before the event counts, and carries a digest of itself: what a full disk or a power cut left
half written is recognised, passed over, and never glued to the next line. Keys that this version does not know are
kept out of its way, and events that it does not know are shown as they are, so that an older version reads on.

It does not grow without bound: past ``FOLD_BYTES`` the older half becomes one line that counts what was in it, in a
new file that takes the place of the old one in one step. What still decides about a release stays as it was.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from archonctl.errors import HostRefusal
from archonctl.probe.values import VerdictWord
from archonctl.release.disk import open_unlinked
from archonctl.service.state import atomic_write

SCHEMA = "archonctl.record/1"
LIMIT_BYTES = 8 << 20
"""Read at most: some ten thousand events. Older ones are passed over, and their bytes counted."""
FOLD_BYTES = LIMIT_BYTES // 2
"""A file that has grown past this is folded after the event is written: its newer half stays, line for line."""
_DECIDING = 512
"""Releases before that half whose last verdict, and last one that held, stay: ``rollback`` goes by them."""

APPLIED, ROLLED_BACK, FAILED, REFUSED, VERIFIED, STOPPED = (
    "applied",
    "rolled-back",
    "failed",
    "refused",
    "verified",
    "stopped",
)
"""A release was started and holds; an earlier one was, after another failed or because a person asked; one was started
and does not hold; one was refused before anything was touched; one that runs was asked again; it was stopped."""
FOLDED = "folded"
"""Earlier events in one line: ``facts`` has their number, the time of the first, and how many there were of each."""


@dataclass(frozen=True, slots=True)
class Record:
    """One event. ``at`` is Unix time in seconds; ``release`` and ``before`` are digests, empty where there is none.

    ``verdict`` is empty where nothing was asked. ``facts`` is what the verdict was taken under (boot, kernel, TTM
    limit, model file, unit files), for the drift check.
    """

    event: str
    release: str
    at: float
    verdict: str = ""
    before: str = ""
    reasons: tuple[str, ...] = ()
    transaction: str = ""
    invocation: str = ""
    user: str = ""
    archonctl: str = ""
    facts: Mapping[str, str | int] = field(default_factory=dict)

    @property
    def held(self) -> bool:
        """True if this event says that the release holds."""
        word: VerdictWord = "holds"
        return self.verdict == word


@dataclass(frozen=True, slots=True)
class History:
    """The events, oldest first, how many lines could not be read, and how many bytes before them were not."""

    records: tuple[Record, ...] = ()
    unreadable: int = 0
    passed_over_bytes: int = 0

    def last(self, release: str = "") -> Record | None:
        """The latest event with a verdict, of one release or of any."""
        return next((r for r in reversed(self.records) if r.verdict and release in ("", r.release)), None)

    def held(self, other_than: str = "") -> list[str]:
        """Releases whose latest verdict is "holds", the one that held last first."""
        latest: dict[str, Record] = {}
        for record in reversed(self.records):
            if record.verdict and record.release:
                latest.setdefault(record.release, record)
        return [name for name, record in latest.items() if record.held and name != other_than]


def read_history(path: Path) -> History:
    """Everything that can be read. Raises HostRefusal ``state-unreadable`` if the file itself cannot be."""
    try:
        handle = open_unlinked(path)
        try:
            size = os.fstat(handle).st_size
            os.lseek(handle, max(0, size - LIMIT_BYTES), os.SEEK_SET)
            with os.fdopen(handle, "rb", closefd=False) as file:
                raw = file.read(LIMIT_BYTES)
        finally:
            os.close(handle)
    except FileNotFoundError:
        return History()
    except OSError as err:
        raise _unreadable(path, err) from None
    lines = raw.split(b"\n")
    if size > LIMIT_BYTES:
        lines = lines[1:]  # begins in the middle of a line
    found = [_parse(line) for line in lines if line.strip()]
    records = tuple(r for r in found if r is not None)
    return History(records, sum(r is None for r in found), max(0, size - LIMIT_BYTES))


def record(path: Path, event: Record, fold_bytes: int = FOLD_BYTES) -> None:
    """Add one event; when this returns it is on disk. Raises HostRefusal ``state-unwritable``.

    A file that has grown past ``fold_bytes`` is folded; one that cannot be (a full disk) is whole all the same, and
    the next event tries again.
    """
    try:
        with _appending(path) as (handle, broken):
            data = (b"\n" if broken else b"") + _line(event)
            before = os.fstat(handle).st_size
            try:
                view = memoryview(data)
                while view:
                    view = view[os.write(handle, view) :]
                os.fsync(handle)
            except OSError:
                with contextlib.suppress(OSError):
                    os.ftruncate(handle, before)  # a half line would do no harm, and would never be needed
                raise
            if before + len(data) > fold_bytes:
                with contextlib.suppress(OSError):
                    _fold(path, fold_bytes // 2)
    except OSError as err:
        hint = f"df -h {path.parent}; what runs is not touched"
        raise HostRefusal("state-unwritable", err.strerror or str(err), where=str(path), hint=hint) from None


@contextlib.contextmanager
def _appending(path: Path) -> Iterator[tuple[int, bool]]:
    """The file locked for one writer, and whether its last line is only half there."""
    is_new = not path.exists()
    handle = _locked(path)
    try:
        size = os.fstat(handle).st_size
        yield handle, size > 0 and os.pread(handle, 1, size - 1) != b"\n"
        if is_new:
            folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
    finally:
        os.close(handle)


def _locked(path: Path) -> int:
    """The file that has the name once the lock is ours: another writer may have folded it while we waited."""
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    while True:
        handle = os.open(path, flags, 0o644)
        try:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise OSError(None, "not a regular file")
            fcntl.flock(handle, fcntl.LOCK_EX)
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(handle), os.lstat(path)):
                    return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def _fold(path: Path, keep_bytes: int) -> None:
    """Put a shorter file in the place of the locked one. Raises OSError; the old file is whole then."""
    for left in path.parent.glob(f".{path.name}.*"):  # of a fold that was killed: nobody else writes one now
        left.unlink()
    lines = path.read_bytes().splitlines(keepends=True)
    size, cut = 0, len(lines)
    while cut and size + len(lines[cut - 1]) <= keep_bytes:
        cut -= 1
        size += len(lines[cut])
    old = [(line, _parse(line)) for line in lines[:cut] if line.strip()]
    deciding = _deciding([each for _line, each in old])
    kept = [line for number, (line, _each) in enumerate(old) if number in deciding]
    gone = [each for number, (_line, each) in enumerate(old) if number not in deciding]
    if gone:
        atomic_write(path, b"".join([_line(_folded(gone)), *kept, *lines[cut:]]), 0o644)


def _deciding(events: Sequence[Record | None]) -> set[int]:
    """Where the last verdict on each release is, and the last that held."""
    verdicts: dict[str, int] = {}
    held: dict[str, int] = {}
    for number, each in enumerate(events):
        if each is not None and each.verdict and each.release:
            verdicts[each.release] = number
            if each.held:
                held[each.release] = number
    newest = sorted(verdicts, key=lambda name: verdicts[name])[-_DECIDING:]
    return {found[name] for found in (verdicts, held) for name in newest if name in found}


def _folded(events: Iterable[Record | None]) -> Record:
    """One event that counts others; one that was folded before is added up."""
    counts: Counter[str] = Counter()
    first, last = float("inf"), 0.0
    for each in events:
        if each is None:
            counts["unreadable"] += 1
        elif each.event == FOLDED:
            earlier = {name: value for name, value in each.facts.items() if isinstance(value, int)}
            first, last = min(first, earlier.pop("first_at", each.at)), max(last, each.at)
            counts.update(earlier)
        else:
            counts.update(["events", f"event {each.event}", *([f"verdict {each.verdict}"] if each.verdict else [])])
            first, last = min(first, each.at), max(last, each.at)
    words = ", ".join(f"{count:,} {name.partition(' ')[2]}" for name, count in sorted(counts.items()) if " " in name)
    said = f"{counts['events']:,} earlier events are folded into this line: {words}"
    facts = {**counts, "first_at": int(first if last else 0)}
    return Record(FOLDED, "", last, reasons=(said,), facts=facts)


def _line(event: Record) -> bytes:
    value: dict[str, Any] = {"schema": SCHEMA, **asdict(event)}
    return json.dumps(value | {"sum": _sum(value)}, sort_keys=True).encode("ascii") + b"\n"


def _sum(value: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode("ascii")).hexdigest()[:16]


def _parse(line: bytes) -> Record | None:
    try:
        value = json.loads(line)
        if not isinstance(value, dict) or value.pop("sum", None) != _sum(value):
            return None
        if value.get("schema") != SCHEMA:
            return None
        known = {f.name: value[f.name] for f in fields(Record) if f.name in value}
        found = Record(**known | {"reasons": _texts(known.get("reasons", ()))})
        texts = (found.event, found.release, found.verdict, found.before, found.transaction, found.invocation)
        sound = all(isinstance(text, str) for text in texts) and isinstance(found.facts, dict)
        return found if sound and isinstance(found.at, int | float) else None
    except (ValueError, TypeError, RecursionError):
        return None


def _texts(values: Sequence[object]) -> tuple[str, ...]:
    return tuple(map(str, values))


def _unreadable(path: Path, err: OSError) -> HostRefusal:
    return HostRefusal("state-unreadable", err.strerror or str(err), where=str(path))
