"""What this machine has room for: RAM behind a tmpfs, a folder on a disk. Reads only."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_IN_RAM = frozenset({"tmpfs", "ramfs", "devtmpfs"})
SHM = Path("/dev/shm")


@dataclass(frozen=True, slots=True)
class Room:
    """What a folder's file system says. ``in_ram``: it is a tmpfs; ``None``: the kernel's table does not say."""

    path: Path
    free_bytes: int
    in_ram: bool | None


def room_of(path: Path, mounts: str | None = None) -> Room | None:
    """Free space of the nearest folder that is there; None where it cannot be asked. ``mounts``: a mountinfo table."""
    there = path
    try:
        while not there.exists() and there != there.parent:
            there = there.parent
        said = os.statvfs(there)
        table = _mounts() if mounts is None else mounts
        kind = file_system(there.resolve(), table)
    except OSError:
        return None
    return Room(path, said.f_bavail * said.f_frsize, None if kind is None else kind in _IN_RAM)


def _mounts() -> str:
    return Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")


def file_system(path: Path, mounts: str) -> str | None:
    """The type of the file system that holds ``path``, by a mountinfo table (proc_pid_mountinfo(5)); None: unknown."""
    found: tuple[int, str] | None = None
    for line in mounts.splitlines():
        front, dash, back = line.partition(" - ")
        words: Sequence[str] = front.split()
        if not dash or len(words) < 5 or not back.split():
            continue
        point = Path(words[4].encode("utf-8", "surrogateescape").decode("unicode_escape", "replace"))
        if path == point or point in path.parents:
            depth = len(point.parts)
            if found is None or depth >= found[0]:
                found = depth, back.split()[0]
    return found[1] if found else None
