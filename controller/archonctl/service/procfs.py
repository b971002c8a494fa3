"""Processes as the kernel tells of them: identity, descent, memory and input, listening sockets.

Everything is read from ``/proc`` (proc(5)); a file that vanished or may not be read gives None or nothing,
never a made-up zero. ``root`` is the mount point, so that tests can lay out their own.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
_LISTEN = "0A"  # TCP_LISTEN in include/net/tcp_states.h, as /proc/net/tcp prints it

_SECRET = re.compile(r"((?:key|token|secret|password)[ =])\S+", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Identity:
    """What tells one process from another that got the same number later: ``start_ticks`` since boot, and the boot."""

    pid: int
    start_ticks: int
    boot_id: str


@dataclass(frozen=True, slots=True)
class Stat:
    """The fields of ``/proc/PID/stat`` that are used here. ``state`` is the letter (``Z``: dead, not yet reaped)."""

    pid: int
    ppid: int
    session: int
    state: str
    start_ticks: int


@dataclass(frozen=True, slots=True)
class Usage:
    """What a process tree holds and has read so far, in bytes; None where the kernel does not say."""

    rss_bytes: int | None
    read_bytes: int | None


@dataclass(frozen=True, slots=True)
class Listener:
    """A process that listens on a port; ``pid`` is None where its descriptors may not be read."""

    pid: int | None
    command: str
    uid: int

    def __str__(self) -> str:
        if self.pid is None:
            return f"a process of uid {self.uid} that this user may not look into"
        return f"pid {self.pid} ({self.command})" if self.command else f"pid {self.pid}"


def boot_id(root: Path = PROC) -> str:
    """The kernel's random id of this boot; empty where it is hidden."""
    try:
        return (root / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def stat(pid: int, root: Path = PROC) -> Stat | None:
    """One process, or None if it is gone. The name is skipped by its last parenthesis: it may contain any byte."""
    try:
        raw = (root / str(pid) / "stat").read_bytes()
    except OSError:
        return None
    fields = raw[raw.rfind(b")") + 2 :].split()
    if len(fields) < 20:
        return None
    return Stat(pid, int(fields[1]), int(fields[3]), fields[0].decode("ascii", "replace"), int(fields[19]))


def identity(pid: int, root: Path = PROC) -> Identity | None:
    """The identity of a live process; None if it is gone or only waits to be reaped."""
    found = stat(pid, root)
    if found is None or found.state in "ZX":
        return None
    return Identity(pid, found.start_ticks, boot_id(root))


def is_alive(who: Identity, root: Path = PROC) -> bool:
    """True if this very process still runs (not one that got its number later, nor a zombie)."""
    return identity(who.pid, root) == who


def all_stats(root: Path = PROC) -> Iterator[Stat]:
    """Every process that can be seen."""
    try:
        names = os.listdir(root)  # noqa: PTH208 - a Path per entry would triple the cost of a scan
    except OSError:
        return
    for name in names:
        if name.isdigit() and (found := stat(int(name), root)) is not None:
            yield found


def tree(pid: int, root: Path = PROC) -> list[int]:
    """``pid`` if alive, its descendants, and what shares its session; dead ones are left out."""
    everything = list(all_stats(root))
    known = {pid}
    grew = True
    while grew:
        found = {s.pid for s in everything if s.ppid in known or s.session == pid}
        grew = not found <= known
        known |= found
    return sorted(s.pid for s in everything if s.pid in known and s.state not in "ZX")


def command(pid: int, root: Path = PROC, limit: int = 160) -> str:
    """The command line for people, cut at ``limit`` characters; the short name where it is empty."""
    try:
        raw = (root / str(pid) / "cmdline").read_bytes()[:4096]
        text = raw.rstrip(b"\0").replace(b"\0", b" ").decode("utf-8", "replace")
        text = text or (root / str(pid) / "comm").read_text(errors="replace").strip()
    except OSError:
        return ""
    text = "".join(c if c.isprintable() else "?" for c in text)
    return text if len(text) <= limit else text[: limit - 3] + "..."


def usage(pids: list[int], root: Path = PROC) -> Usage:
    """Resident bytes and bytes read of these processes together.

    Read is the larger of ``rchar`` (read calls) and ``read_bytes`` (from the device, which page faults of a
    mapped file count too) for each, since a loader uses one way or the other.
    """
    rss = [found for pid in pids if (found := _rss(pid, root)) is not None]
    read = [found for pid in pids if (found := _read(pid, root)) is not None]
    return Usage(sum(rss) if rss else None, sum(read) if read else None)


def _rss(pid: int, root: Path) -> int | None:
    try:
        pages = int((root / str(pid) / "statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


def _read(pid: int, root: Path) -> int | None:
    try:
        lines = (root / str(pid) / "io").read_text().splitlines()
        values = {name: int(value) for name, _, value in (line.partition(":") for line in lines)}
    except (OSError, ValueError):
        return None
    return max(values.get("rchar", 0), values.get("read_bytes", 0))


def listeners(port: int, root: Path = PROC) -> list[Listener]:
    """Who listens on this TCP port in our network namespace, on any address.

    What follows a word like ``--api-key`` in a command line is left out.
    """
    owners: dict[int, int] = {}
    for table in ("net/tcp", "net/tcp6"):
        owners.update(_listening_inodes(root / table, port))
    if not owners:
        return []
    pids = _pids_of_sockets(set(owners), root)
    found = {pid: Listener(pid, _SECRET.sub(r"\1...", command(pid, root)), owners[inode]) for inode, pid in pids}
    hidden = set(owners) - {inode for inode, _ in pids}
    nameless = [Listener(None, "", uid) for uid in sorted({owners[inode] for inode in hidden})]
    return [found[pid] for pid in sorted(found)] + nameless


def listening(port: int, root: Path = PROC) -> frozenset[int]:
    """The inodes of the sockets that listen on this TCP port in our network namespace; another start has others."""
    tables = (root / "net/tcp", root / "net/tcp6")
    return frozenset(inode for table in tables for inode in _listening_inodes(table, port))


def _listening_inodes(table: Path, port: int) -> dict[int, int]:
    """Inode -> uid of the sockets in one /proc/net table that listen on ``port``."""
    found: dict[int, int] = {}
    try:
        with table.open() as lines:
            next(lines, None)
            for line in lines:
                fields = line.split()
                if len(fields) > 9 and fields[3] == _LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                    found[int(fields[9])] = int(fields[7])
    except (OSError, ValueError):
        return found
    return found


def _pids_of_sockets(inodes: set[int], root: Path) -> list[tuple[int, int]]:
    """(inode, pid) for each process that holds one of these sockets, as far as their descriptors may be read."""
    wanted = {f"socket:[{inode}]": inode for inode in inodes}
    found: list[tuple[int, int]] = []
    for name in os.listdir(root):  # noqa: PTH208
        if not name.isdigit():
            continue
        folder = f"{root}/{name}/fd"
        try:
            links = os.listdir(folder)  # noqa: PTH208
        except OSError:
            continue
        for link in links:
            try:
                target = os.readlink(f"{folder}/{link}")  # noqa: PTH115
            except OSError:
                continue
            if target in wanted:
                found.append((wanted[target], int(name)))
                break
    return found
