"""One rollout over an inventory at a time, as far as this machine sees it; each host has a lock of its own besides."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from archonctl.errors import HostRefusal
from archonctl.fleet.facts import facts_folder
from archonctl.service.operator import named

LOCK = ".rollout"


@contextlib.contextmanager
def rollout_lock(inventory: tuple[str, ...], operator: str, environ: Mapping[str, str]) -> Iterator[None]:
    """Hold the inventory against another rollout of this user; the kernel lets it go if this process dies.

    Raises HostRefusal ``fleet-busy`` with who holds it, or ``state-unwritable``.
    """
    path = facts_folder(inventory, environ) / LOCK
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as err:
        raise HostRefusal("state-unwritable", err.strerror or str(err), where=str(path)) from None
    try:
        _take(fd, path, operator)
        yield
    finally:
        os.close(fd)


def _take(fd: int, path: Path, operator: str) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        who = named(os.pread(fd, 256, 0).decode("ascii", "replace")) or "another archonctl"
        why = f"another rollout over this inventory is under way: {who}"
        raise HostRefusal("fleet-busy", why, where=str(path), hint="wait for it, or end it with Ctrl-C") from None
    began = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    with contextlib.suppress(OSError):  # who it is is a courtesy; a full disk must not matter
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{named(operator)}, pid {os.getpid()}, since {began}\n".encode(), 0)
