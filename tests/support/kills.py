"""Kills a process at its Nth change of the disk (or of systemd), in a child, so that every point can be tried."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable

CHANGES = (
    "open",
    "write",
    "fsync",
    "rename",
    "replace",
    "symlink",
    "unlink",
    "mkdir",
    "rmdir",
    "chmod",
    "fchmod",
    "ftruncate",
)
"""Functions of ``os`` that change what is on disk, or make it last."""


class Counter:
    """Counts changes; at number ``limit`` it kills this process, or lets that change fail."""

    def __init__(self, limit: int, fault: int = 0) -> None:
        self.limit = limit
        self.fault = fault
        self.count = 0

    def tick(self) -> None:
        """One change is about to happen."""
        self.count += 1
        if self.count == self.limit and not self.fault:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.fault and self.count >= self.limit:
            raise OSError(self.fault, os.strerror(self.fault))

    def watch(self) -> None:
        """Count the changes of this process from now on."""
        for name in CHANGES:
            setattr(os, name, self._counted(getattr(os, name), name))

    def _counted(self, real: Callable[..., object], name: str) -> Callable[..., object]:
        def counted(*args: object, **options: object) -> object:
            flags = args[1] if name == "open" and len(args) > 1 else os.O_WRONLY
            if isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
                self.tick()
            return real(*args, **options)

        return counted


def killed_at(number: int, work: Callable[[Counter], object]) -> bool:
    """Run ``work`` in a child that dies at its ``number``-th change; False if it ended before that."""
    child = os.fork()
    if child == 0:
        code = 70
        try:
            counter = Counter(number)
            counter.watch()
            work(counter)
            code = 0
        finally:
            os._exit(code)
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        return True
    assert os.waitstatus_to_exitcode(status) == 0, f"the work itself failed before change {number}"
    return False


FULL = errno.ENOSPC
