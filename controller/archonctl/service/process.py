"""An engine as a child process: started clean, watched, and stopped whole.

``EngineProcess`` talks to ``guard.py``, the engine's parent: see there for why there is one. The engine gets
its argv as a list (no shell), exactly the environment that it is given, a session of its own, no standard
input, and a log file for both outputs, so that it never blocks on us.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import pwd
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from archonctl.errors import HostRefusal
from archonctl.service import procfs
from archonctl.service.exits import ExitStatus, OomWatch

GRACE_S = 10.0
LOG_CAP_BYTES = 64 * 1024 * 1024
LOG_HEAD_BYTES = 16 * 1024 * 1024
_GUARD = Path(__file__).with_name("guard.py")
_GUARD_ANSWER_S = 30.0


@dataclass(frozen=True, slots=True)
class StartSpec:
    """What to start. ``executable`` is the resolved program, ``argv[0]`` what it is told its name is."""

    argv: tuple[str, ...]
    executable: str
    env: Mapping[str, str]
    log: Path
    cwd: str = "/"
    grace_s: float = GRACE_S
    """Between SIGTERM and SIGKILL."""
    detach: bool = False
    """True if the engine may be released to outlive us; then no parent-death signal is set on it."""
    user: str = ""
    """Run as this user (needs root); empty: as we are."""
    log_cap_bytes: int = LOG_CAP_BYTES
    log_head_bytes: int = LOG_HEAD_BYTES


class EngineProcess:
    """One started engine. Not for use by several threads at once, save ``hurry``."""

    def __init__(self, spec: StartSpec, guard: subprocess.Popen[bytes], sock: socket.socket) -> None:
        self.spec = spec
        self.pid = 0
        self.start: procfs.Identity | None = None
        self._guard = guard
        self._sock = sock
        self._buffer = b""
        self._status: ExitStatus | None = None
        self._left: tuple[int, ...] | None = None
        self._stopping = False
        self._oom = OomWatch.begin()

    @classmethod
    def launch(cls, spec: StartSpec) -> EngineProcess:
        """Start it. The log file is made anew, readable by its owner only.

        Raises HostRefusal ``engine-not-startable`` where the kernel refuses to run the program, and
        ``log-unwritable`` where the log cannot be made.
        """
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
            log_fd = os.open(spec.log, flags, 0o600)
        except OSError as err:
            text = f"cannot write the engine's log: {err.strerror}"
            raise HostRefusal("log-unwritable", text, where=str(spec.log)) from None
        ours, theirs = socket.socketpair()
        with contextlib.closing(theirs):
            try:
                guard = subprocess.Popen(
                    [sys.executable, "-I", "-S", str(_GUARD)],
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=log_fd,
                    start_new_session=True,
                    cwd="/",
                )
            except BaseException:
                ours.close()
                raise
            finally:
                os.close(log_fd)
        process = cls(spec, guard, ours)
        try:
            process._begin()
        except BaseException:
            process.close()
            raise
        return process

    def _begin(self) -> None:
        """Raises HostRefusal ``user-missing``, ``engine-not-startable``."""
        spec = self.spec
        order = {
            "argv": list(spec.argv),
            "executable": spec.executable,
            "env": dict(spec.env),
            "cwd": spec.cwd,
            "log": str(spec.log),
            "grace_s": spec.grace_s,
            "die_with_us": not spec.detach,
            "credentials": credentials(spec.user),
            "log_cap_bytes": spec.log_cap_bytes,
            "log_head_bytes": spec.log_head_bytes,
        }
        with contextlib.suppress(BrokenPipeError):
            self._sock.sendall(json.dumps(order).encode() + b"\n")
        deadline = time.monotonic() + _GUARD_ANSWER_S
        while self.pid == 0 and not self._gone and time.monotonic() < deadline:
            self._listen(0.5)
        if self.pid == 0:
            raise HostRefusal("engine-guard-failed", "the engine's guard process did not answer", where=str(spec.log))

    @property
    def _gone(self) -> bool:
        return self._sock.fileno() < 0

    def _listen(self, timeout_s: float) -> None:
        """Take in what the guard says, waiting at most ``timeout_s`` for something."""
        if self._gone:
            return
        self._sock.settimeout(timeout_s or 0.000001)
        try:
            data = self._sock.recv(65536)
        except TimeoutError:
            return
        except OSError:
            data = b""
        if not data:
            self._guard_ended()
            return
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            self._take(json.loads(line))

    def _take(self, event: dict[str, object]) -> None:
        match event:
            case {"event": "started", "pid": int(pid)}:
                self.pid, self.start = pid, procfs.identity(pid)
            case {"event": "failed", "errno": int(number), "text": str(text)}:
                raise _not_startable(self.spec, number, text)
            case {"event": "exited", "status": int(status)}:
                self._status = self._with_oom(ExitStatus.from_wait(status))
            case {"event": "stopped", "left": list(left)}:
                self._left = tuple(int(str(pid)) for pid in left)

    def _with_oom(self, status: ExitStatus) -> ExitStatus:
        if not status.killed or self._stopping:
            return status
        return ExitStatus(status.code, status.signal, self._oom.evidence(self.pid))

    def _guard_ended(self) -> None:
        """The socket is at its end: in good order after ``stopped``, else because somebody killed the guard."""
        self._sock.close()
        self._guard.wait()
        if self.pid and self._left is None:
            for pid in procfs.tree(self.pid):
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            self._status = self._status or ExitStatus(None, None)

    def poll(self) -> ExitStatus | None:
        """How the engine ended, or None while it runs."""
        self._listen(0.0)
        return self._status

    def wait(self, timeout_s: float) -> ExitStatus | None:
        """Like ``poll``, after waiting up to ``timeout_s`` for the end."""
        deadline = time.monotonic() + timeout_s
        while self._status is None and (left := deadline - time.monotonic()) > 0:
            if self._gone:
                break
            self._listen(left)
        return self._status

    def pids(self) -> list[int]:
        """The engine and everything it started that is alive."""
        return procfs.tree(self.pid)

    def owns(self, pid: int) -> bool:
        """True if ``pid`` is the engine or one of its descendants."""
        return pid in self.pids()

    def stop(self) -> ExitStatus:
        """End the engine and all its descendants, with grace; returns how it ended. May be called again.

        Raises HostRefusal ``engine-unkillable`` if something survives SIGKILL (uninterruptible in the kernel).
        """
        self._stopping = True
        self._tell(b"stop\n")
        limit = time.monotonic() + self.spec.grace_s + 20.0
        while not self._gone and time.monotonic() < limit:
            self._listen(0.5)
        left = self._left or ()
        if left or not self._gone:
            names = ", ".join(str(pid) for pid in left) or str(self.pid)
            raise HostRefusal(
                "engine-unkillable",
                f"pid {names} did not end within {self.spec.grace_s + 10:.0f} s, SIGKILL included",
                hint="look at its state in /proc/PID/status and at the kernel log; the card may need a reset",
            )
        return self._status or ExitStatus(None, None)

    def hurry(self) -> None:
        """SIGKILL now. Safe to call from a signal handler, also while ``stop`` waits."""
        self._stopping = True
        self._tell(b"kill\n")

    def release(self) -> None:
        """Let the engine run on without us. Raises ValueError if it was not started with ``detach``."""
        if not self.spec.detach:
            raise ValueError("started without detach")
        self._tell(b"release\n")
        self.close()

    def _tell(self, word: bytes) -> None:
        with contextlib.suppress(OSError):
            os.write(self._sock.fileno(), word)

    def close(self) -> None:
        """Hang up; a guard that was not told to release stops the engine by itself then."""
        self._sock.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._guard.wait(self.spec.grace_s + 20.0)


def credentials(user: str) -> dict[str, int | list[int]]:
    """What subprocess needs to run something as ``user``: nothing for "" or ourselves.

    Raises HostRefusal ``user-missing``.
    """
    if not user:
        return {}
    try:
        found = pwd.getpwnam(user)
    except KeyError:
        raise HostRefusal(
            "user-missing",
            f"there is no user {user!r} here",
            where="service.user",
            hint="useradd --system, or --set service.user=",
        ) from None
    if found.pw_uid == os.geteuid():
        return {}
    groups = os.getgrouplist(user, found.pw_gid)
    return {"user": found.pw_uid, "group": found.pw_gid, "extra_groups": groups}


def _not_startable(spec: StartSpec, number: int, text: str) -> HostRefusal:
    reasons = {
        errno.ENOENT: "the file, its script interpreter or its loader does not exist",
        errno.EACCES: "no permission to execute it (mode, mount option noexec, or a folder that may not be entered)",
        errno.ENOEXEC: "the kernel does not know the format (another architecture, or a script without #!)",
        errno.E2BIG: "its arguments and environment are too long",
        errno.EPERM: "not permitted, such as taking on another user without being root",
        errno.ENOMEM: "there was no memory to start it",
        errno.EAGAIN: "the limit on processes is reached (RLIMIT_NPROC or pids.max)",
    }
    return HostRefusal("engine-not-startable", reasons.get(number, text), where=spec.executable)
