"""How a process ended, in words, and whether the kernel killed it for memory.

A SIGKILL (or a shell's 137) is only a guess at an out-of-memory kill: it may as well be a person's ``kill -9``.
It is called that only with evidence: the engine's cgroup counted one, or the kernel's log names the process.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from archonctl.service.procfs import PROC

CGROUP = Path("/sys/fs/cgroup")
KMSG = Path("/dev/kmsg")
_KMSG_LIMIT_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ExitStatus:
    """An exit code or a signal (one is None); both None where whoever waited for it was itself killed."""

    code: int | None
    signal: int | None
    oom: str = ""
    """Evidence that the kernel killed it for memory; empty where there is none."""
    detail: str = ""
    """What is known instead of a status."""

    @classmethod
    def from_wait(cls, status: int) -> ExitStatus:
        """From a raw status of waitpid(2)."""
        if os.WIFSIGNALED(status):
            return cls(None, os.WTERMSIG(status))
        return cls(os.WEXITSTATUS(status), None)

    @property
    def killed(self) -> bool:
        """True if SIGKILL ended it, as seen directly or through a shell that passed it on."""
        return self.signal == signal.SIGKILL or self.code == 128 + signal.SIGKILL

    @property
    def words(self) -> str:
        """``exit 1``, ``killed by signal 9 (SIGKILL)``; with the evidence where memory was the reason."""
        because = f", out of memory: {self.oom}" if self.oom else ""
        if self.signal is not None:
            return f"killed by signal {self.signal} ({signal_name(self.signal)}){because}"
        if self.code is None:
            return self.detail or "ended, with a status that nobody could collect"
        shell = ""
        if self.code in (126, 127):
            shell = " (what a shell or loader returns when a program or library is not found)"
        elif self.code > 128 and (name := signal_name(self.code - 128)):
            shell = f" (what a shell returns after signal {self.code - 128}, {name})"
        return f"exit {self.code}{shell}{because}"


def signal_name(number: int) -> str:
    """``SIGKILL`` for 9; empty for a number that is no signal here."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return ""


@dataclass(frozen=True, slots=True)
class OomWatch:
    """Counters taken before the start, to be compared after the end."""

    cgroup_kills: int | None
    kernel_kills: int | None
    cgroup: Path | None

    @classmethod
    def begin(cls, pid: int | str = "self", proc: Path = PROC, cgroup_root: Path = CGROUP) -> OomWatch:
        """Read the counters of the cgroup that ``pid`` is in, and the machine's (``/proc/vmstat``)."""
        cgroup = memory_cgroup(pid, proc, cgroup_root)
        return cls(_cgroup_kills(cgroup), _counter(proc / "vmstat", "oom_kill"), cgroup)

    def evidence(self, pid: int, proc: Path = PROC, read_kmsg: Callable[[], str] | None = None) -> str:
        """Why the end of ``pid`` was an out-of-memory kill; empty where nothing says so."""
        total = _counter(proc / "vmstat", "oom_kill")
        if total is not None and total == self.kernel_kills:
            return ""
        if line := kernel_says(pid, (read_kmsg or kernel_log)()):
            return f"the kernel log says {line!r}"
        now = _cgroup_kills(self.cgroup)
        if now is not None and self.cgroup_kills is not None and now > self.cgroup_kills:
            return f"{self.cgroup} counted {now - self.cgroup_kills} oom_kill since the start"
        return ""


def memory_cgroup(pid: int | str, proc: Path = PROC, root: Path = CGROUP) -> Path | None:
    """The directory of the process's memory cgroup, v2 or v1 (cgroups(7)); None where it cannot be told."""
    try:
        lines = (proc / str(pid) / "cgroup").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        _, controllers, path = line.split(":", 2)
        base = root / "memory" if "memory" in controllers.split(",") else root if controllers == "" else None
        if base is not None and any((base / path.lstrip("/") / name).exists() for name in _COUNTERS):
            return base / path.lstrip("/")
    return None


_COUNTERS = ("memory.events", "memory.oom_control")


def _cgroup_kills(cgroup: Path | None) -> int | None:
    if cgroup is None:
        return None
    return next((n for name in _COUNTERS if (n := _counter(cgroup / name, "oom_kill")) is not None), None)


def _counter(path: Path, name: str) -> int | None:
    """The value after ``name`` in a file of "name value" lines."""
    try:
        for line in path.read_text().splitlines():
            key, _, value = line.partition(" ")
            if key == name:
                return int(value)
    except (OSError, ValueError):
        return None
    return None


def kernel_says(pid: int, log: str) -> str:
    """The last kernel line that reports the out-of-memory kill of ``pid``; empty if there is none.

    mm/oom_kill.c prints "Out of memory: Killed process 123 (name)" or "Memory cgroup out of memory: Killed
    process 123 (name)".
    """
    found = re.findall(rf"[^\n;]*out of memory: Killed process {pid} \([^\n]*", log, re.IGNORECASE)
    return str(found[-1]).strip()[:200] if found else ""


def kernel_log(path: Path = KMSG) -> str:
    """The kernel's ring buffer as text; empty where it may not be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    parts: list[bytes] = []
    try:
        while sum(map(len, parts)) < _KMSG_LIMIT_BYTES:
            try:
                record = os.read(fd, 8192)
            except BrokenPipeError:  # a record was overwritten before it was read; the next one is fine
                continue
            except OSError:  # EAGAIN: that was the last one
                break
            if not record:
                break
            parts.append(record)
    finally:
        os.close(fd)
    return b"".join(parts).decode("utf-8", "replace")
