"""Staged files in one folder a tier: verified before they count, known again after a restart, never more than a quota.

The engine writes into the first place only (its ``--slot-save-path``); the others are filled by verified copies. A file
counts from the moment its manifest is there, and the manifest is written last and removed first. So whatever moment a
kill or a power cut comes at, a copy is whole and known, or is a leftover that ``Store`` recognises and removes.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from archonctl.tiers import manifest
from archonctl.tiers.folder import PART, Folder, Unfit
from archonctl.tiers.manifest import Staged
from archonctl.tiers.prefix import Prefix
from archonctl.tiers.slot_file import HEAD_BYTES, tokens_in

RESERVE_BYTES = 16 << 20
"""Left free on every file system: another process may write there too (a choice)."""

_MEASURE_BYTES = 16 << 20


class StoreTrouble(StrEnum):
    """Why a file was not staged, or is not used; a closed set, so that it may be a label of a metric."""

    NO_ROOM = "no_room"
    DAMAGED = "damaged"
    """Cut short, changed, or not what the engine said it wrote."""
    DISK = "disk"
    GONE = "gone"


class StagingError(Exception):
    """A copy could not be made or verified; what was there before is untouched."""

    def __init__(self, trouble: StoreTrouble, message: str) -> None:
        super().__init__(message)
        self.trouble = trouble


@dataclass(frozen=True, slots=True)
class PlaceSpec:
    """A folder that is a tier. ``memory``: it lies on tmpfs."""

    name: str
    path: Path
    quota_bytes: int
    memory: bool


@dataclass
class Entry:
    """A staged conversation and the places that hold a verified copy of it."""

    staged: Staged
    places: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Leftovers:
    """What lies in the folders and is no staged file: (place, name)."""

    ours: tuple[tuple[str, str], ...] = ()
    """Half-made, or without a manifest: to be removed."""
    foreign: tuple[tuple[str, str], ...] = ()
    """Links, other names, other owners: never touched."""


class Store:
    """The staged files of one engine. Blocking; one process at a time (``lock``). ``close`` it."""

    def __init__(self, specs: Sequence[PlaceSpec], *, lock: bool = True) -> None:
        """Raises HostRefusal ``tiers-folder-unsafe``, ``tiers-folder-in-use``."""
        self.specs = {spec.name: spec for spec in specs}
        self.first = specs[0].name
        self._folders: dict[str, Folder] = {}
        self._verified: dict[tuple[str, str], tuple[int, ...]] = {}
        self.entries: dict[str, Entry] = {}
        self.leftovers = Leftovers()
        try:
            for spec in specs:
                self._folders[spec.name] = Folder(spec.path)
                if lock:
                    self._folders[spec.name].lock()
        except BaseException:
            self.close()
            raise
        self.look()

    def close(self) -> None:
        """Give back the folders."""
        for folder in self._folders.values():
            folder.close()
        self._folders = {}

    def look(self) -> None:
        """Read what is there. A folder that cannot be listed holds nothing that is known."""
        ours: list[tuple[str, str]] = []
        foreign: list[tuple[str, str]] = []
        self.entries = {}
        for name, folder in self._folders.items():
            with contextlib.suppress(OSError):
                there = folder.names()
                known = {staged.id: staged for staged in self._manifests(folder, there)}
                for staged in known.values():
                    self.entries.setdefault(staged.id, Entry(staged)).places.add(name)
                for each in there:
                    stem, dot, kind = each.rpartition(".")
                    if dot and kind in ("kv", "json") and stem in known:
                        continue
                    half = each.startswith(".") and each.endswith(PART)
                    mine = half or (kind in ("kv", "json") and manifest.is_id(stem))
                    (ours if mine and folder.own_bytes(each) is not None else foreign).append((name, each))
        self.leftovers = Leftovers(tuple(ours), tuple(foreign))

    def _manifests(self, folder: Folder, there: list[str]) -> Iterator[Staged]:
        for each in there:
            if each.endswith(".json") and manifest.is_id(each.removesuffix(".json")):
                with contextlib.suppress(OSError, Unfit, ValueError):
                    staged = manifest.load(folder.read_small(each))
                    if staged.json == each and folder.own_bytes(staged.kv) == staged.bytes:
                        yield staged

    def used_bytes(self, place: str) -> int:
        """What staged files take there."""
        return sum(entry.staged.bytes for entry in self.entries.values() if place in entry.places)

    def bytes_in(self, id_: str, place: str) -> int:
        """The size of one copy; 0 where there is none."""
        entry = self.entries.get(id_)
        return entry.staged.bytes if entry is not None and place in entry.places else 0

    def measure(self, place: str) -> float:
        """Bytes a second of writing a little, making it last, and reading it back. Raises StagingError."""
        folder, name = self._folders[place], f".{self.new_id()}{PART}"
        began = time.monotonic()
        with _told():
            try:
                folder.write(name, bytes(_MEASURE_BYTES))
                folder.digest(name, from_device=True)
            finally:
                folder.remove(name)
        return _MEASURE_BYTES / max(time.monotonic() - began, 1e-9)

    def room_bytes(self, place: str) -> int:
        """What would still be taken: of the quota and of the file system, the lesser. Raises StagingError."""
        try:
            free = self._folders[place].free_bytes() - RESERVE_BYTES
        except OSError as err:
            raise _disk(err) from None
        return max(0, min(self.specs[place].quota_bytes - self.used_bytes(place), free))

    def new_id(self) -> str:
        """A name that nobody can have put there before."""
        return secrets.token_hex(16)

    def adopt(
        self,
        id_: str,
        tokens: int,
        size: int,
        fingerprint: str,
        prefix: Prefix,
        *,
        uses: int = 0,
        now: float | None = None,
    ) -> Staged:
        """Verify a file that the engine says it wrote into the first place, and make it count.

        Raises StagingError; the file is gone then.
        """
        folder, name = self._folders[self.first], f"{id_}.kv"
        try:
            with _told():
                self._is_what_was_said(folder, name, tokens, size)
                folder.make_last(name)
                seen = folder.stamp(name)
                digest, read = folder.digest(name)
                if read != size:
                    raise StagingError(StoreTrouble.DAMAGED, f"{read:,} bytes read, {size:,} written")
                at = time.time() if now is None else now
                staged = Staged(id_, fingerprint, tokens, size, digest, prefix, uses, at)
                self._note(self.first, staged, seen)
                folder.write(staged.json, manifest.dump(staged))
        except BaseException:
            self.discard(id_)
            raise
        self.entries[id_] = Entry(staged, {self.first})
        return staged

    def _is_what_was_said(self, folder: Folder, name: str, tokens: int, size: int) -> None:
        found = folder.own_bytes(name)
        if found != size:
            raise StagingError(StoreTrouble.DAMAGED, f"the engine wrote {size:,} bytes, the file has {found}")
        fd = folder.open_own(name)
        try:
            held = tokens_in(os.read(fd, HEAD_BYTES), size)
        except ValueError as err:
            raise StagingError(StoreTrouble.DAMAGED, str(err)) from None
        finally:
            os.close(fd)
        if held is not None and held != tokens:
            raise StagingError(StoreTrouble.DAMAGED, f"the engine saved {tokens:,} tokens, the file has {held:,}")

    def discard(self, id_: str) -> None:
        """Remove a file of the first place that never came to count."""
        with contextlib.suppress(OSError):
            self._folders[self.first].remove(f"{id_}.json")
            self._folders[self.first].remove(f"{id_}.kv")

    def copy(self, id_: str, source: str, target: str) -> None:
        """A verified copy in another place: written, on the device, read back, and then counted. Raises StagingError.

        A source that is not what its manifest says is dropped.
        """
        entry = self.entries.get(id_)
        if entry is None or source not in entry.places:
            raise StagingError(StoreTrouble.GONE, f"{id_} is not in {source}")
        if target in entry.places:
            return
        staged, into = entry.staged, self._folders[target]
        if self.room_bytes(target) < staged.bytes:
            raise StagingError(StoreTrouble.NO_ROOM, f"{target} has no room for {staged.bytes:,} bytes")
        try:
            with _told():
                read = into.copy_from(self._folders[source], staged.kv)
                if read != (staged.sha256, staged.bytes):
                    self.drop(id_, source)
                    raise StagingError(StoreTrouble.DAMAGED, f"{id_} in {source} is not what was staged")
                seen = into.stamp(staged.kv)
                if into.digest(staged.kv, from_device=True) != (staged.sha256, staged.bytes):
                    raise StagingError(StoreTrouble.DAMAGED, f"{id_} cannot be read back from {target}")
                self._note(target, staged, seen)
                into.write(staged.json, manifest.dump(staged))
        except BaseException:
            with contextlib.suppress(OSError):
                into.remove(staged.json)
                into.remove(staged.kv)
            raise
        entry.places.add(target)

    def ready(self, id_: str) -> Staged:
        """Verify, just before the engine reads it, the copy in the first place, made from another if need be.

        Raises StagingError.
        """
        entry = self.entries.get(id_)
        if entry is None:
            raise StagingError(StoreTrouble.GONE, f"{id_} is not staged")
        if self.first not in entry.places:
            self.copy(id_, next(name for name in self.specs if name in entry.places), self.first)
        staged, folder = entry.staged, self._folders[self.first]
        seen = folder.stamp(staged.kv)
        if seen is None or seen != self._verified.get((self.first, id_)):
            with _told():
                if folder.digest(staged.kv) != (staged.sha256, staged.bytes):
                    self.drop(id_, self.first)
                    raise StagingError(StoreTrouble.DAMAGED, f"{id_} is not what was staged")
                self._note(self.first, staged, seen)
        return staged

    def _note(self, place: str, staged: Staged, seen: tuple[int, ...] | None) -> None:
        """It was verified as it was ``seen`` before it was read: what changed meanwhile is read again."""
        if seen is not None:
            self._verified[place, staged.id] = seen

    def drop(self, id_: str, place: str | None = None) -> None:
        """Remove a copy, or all of them: the manifest first. Raises StagingError."""
        entry = self.entries.get(id_)
        if entry is None:
            return
        for name in [each for each in self.specs if each in entry.places and place in (None, each)]:
            entry.places.discard(name)
            self._verified.pop((name, id_), None)
            if not entry.places:
                del self.entries[id_]
            with _told():
                self._folders[name].remove(entry.staged.json)
                self._folders[name].sync()
                self._folders[name].remove(entry.staged.kv)

    def clean(self, *, keep_s: float | None = None, now: float | None = None) -> tuple[tuple[str, str], ...]:
        """Remove what is half-made, and what was staged longer ago than ``keep_s``; returns (place, name).

        Raises StagingError.
        """
        self.look()
        removed = []
        for place, name in self.leftovers.ours:
            with _told():
                if self._folders[place].remove(name):
                    removed.append((place, name))
        limit = None if keep_s is None else (time.time() if now is None else now) - keep_s
        for entry in list(self.entries.values()):
            if limit is not None and entry.staged.at < limit:
                removed += [(place, entry.staged.kv) for place in entry.places]
                self.drop(entry.staged.id)
        self.look()
        return tuple(removed)


@contextlib.contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except Unfit as err:
        raise StagingError(StoreTrouble.DAMAGED, str(err)) from None
    except FileNotFoundError as err:
        raise StagingError(StoreTrouble.GONE, f"{err.filename} is gone") from None
    except OSError as err:
        raise _disk(err) from None


def _disk(err: OSError) -> StagingError:
    full = err.errno in (errno.ENOSPC, errno.EDQUOT)
    return StagingError(StoreTrouble.NO_ROOM if full else StoreTrouble.DISK, err.strerror or str(err))
