"""The small process between archonctl and the engine it supervises in the foreground.

It runs as a plain script (``python -I -S guard.py``), with nothing but the standard library, so that it
starts in milliseconds and holds little memory. It exists because a ``kill -9`` of archonctl must not leave an
engine behind, and the kernel's own help (``PR_SET_PDEATHSIG``, prctl(2)) reaches one child only, at once and
without grace: workers that the engine forked would keep the cards. The guard instead

* is the engine's parent and a child subreaper (``PR_SET_CHILD_SUBREAPER``), so that every descendant stays
  in its tree, even after a double fork or a setsid;
* holds a socket to archonctl; end-of-file means that archonctl is gone, however it went, and stops the tree;
* stops like systemd's ``KillMode=control-group``: SIGTERM to all, a grace, SIGKILL to what is left;
* gives the engine itself a parent-death SIGKILL, so that killing the guard ends the engine too;
* keeps the log file bounded: the head (which carries the boot ledger) stays, the middle goes.

Told "release", it leaves without touching the engine, which then needs no process of ours.

Protocol, JSON lines both ways over file descriptor 0. In: the specification, then ``stop``, ``kill`` or
``release``. Out: ``started`` {pid} | ``failed`` {errno, text}; ``exited`` {status}; ``stopped`` {left: pids}.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from typing import Any

PR_SET_PDEATHSIG = 1  # include/uapi/linux/prctl.h
PR_SET_CHILD_SUBREAPER = 36
TAIL_KEPT_BYTES = 4 * 1024 * 1024
KILL_WAIT_S = 10.0
"""How long a process may take to go after SIGKILL (one in uninterruptible sleep does not go)."""


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def _parents() -> dict[int, int]:
    """pid -> parent of every process that is not a zombie."""
    found: dict[int, int] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123
                raw = file.read()
        except OSError:
            continue
        fields = raw[raw.rfind(b")") + 2 :].split()
        if len(fields) > 1 and fields[0] not in (b"Z", b"X"):
            found[int(name)] = int(fields[1])
    return found


def descendants() -> list[int]:
    """Every live process below this one."""
    parents = _parents()
    known = {os.getpid()}
    grew = True
    while grew:
        fresh = {pid for pid, parent in parents.items() if parent in known} - known
        grew = bool(fresh)
        known |= fresh
    return sorted(known - {os.getpid()})


def _signal_all(number: int) -> None:
    for pid in descendants():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def bound_log(fd: int, path: str, cap_bytes: int, head_bytes: int) -> bool:
    """Cut a log that outgrew ``cap_bytes`` back to its first ``head_bytes`` (at a line's end).

    The last part goes to ``PATH.1`` first. The engine writes with O_APPEND, so it goes on at the new end.
    Returns True if the log was cut.
    """
    size = os.fstat(fd).st_size
    if size <= cap_bytes:
        return False
    tail = os.pread(fd, TAIL_KEPT_BYTES, max(head_bytes, size - TAIL_KEPT_BYTES))
    with contextlib.suppress(OSError):  # a full disk is one more reason to cut
        out = os.open(f"{path}.1", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            os.write(out, tail)
        finally:
            os.close(out)
    before = os.pread(fd, min(head_bytes, 64 * 1024), head_bytes - min(head_bytes, 64 * 1024))
    os.ftruncate(fd, head_bytes - len(before) + (before.rfind(b"\n") + 1 or len(before)))
    return True


class Guard:
    """One engine, one socket."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.buffer = b""
        self.spec: dict[str, Any] = {}
        self.main: int = 0
        self.status: int | None = None
        self.log_fd = -1
        self.deadline: float | None = None  # of the grace, once stopping
        self.kill_deadline: float | None = None

    def say(self, event: str, **fields: object) -> None:
        """One event to archonctl; nobody listening is no reason to stop working."""
        with contextlib.suppress(OSError):
            self.sock.sendall(json.dumps({"event": event, **fields}).encode() + b"\n")

    def lines(self) -> list[str] | None:
        """What archonctl sent; None once it is gone. Blocks only if there is nothing to read."""
        try:
            data = self.sock.recv(1 << 20)
        except OSError:
            return None
        if not data:
            return None
        *whole, self.buffer = (self.buffer + data).split(b"\n")
        return [line.decode() for line in whole]

    def read_spec(self) -> list[str] | None:
        """Wait for the specification; returns the commands that came along with it."""
        while True:
            got = self.lines()
            if got is None:
                return None
            if got:
                self.spec = json.loads(got[0])
                return got[1:]

    def spawn(self) -> bool:
        """Start the engine; False (and a ``failed`` event) if the kernel refuses to."""
        spec, guard_pid = self.spec, os.getpid()

        def in_child() -> None:
            signal.pthread_sigmask(signal.SIG_SETMASK, [])
            if spec["die_with_us"]:
                _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
                if os.getppid() != guard_pid:  # died before the kernel was told
                    os._exit(125)

        try:
            self.log_fd = os.open(spec["log"], os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
            child = subprocess.Popen(
                spec["argv"],
                executable=spec["executable"],
                env=spec["env"],
                cwd=spec["cwd"],
                stdin=subprocess.DEVNULL,
                stdout=self.log_fd,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                **spec["credentials"],
                preexec_fn=in_child,  # noqa: PLW1509 - this process has one thread
            )
        except (OSError, ValueError) as err:
            self.say("failed", errno=getattr(err, "errno", None) or 0, text=str(err))
            return False
        self.main = child.pid
        child.returncode = 0  # reaped here, not by subprocess
        self.say("started", pid=child.pid)
        return True

    def reap(self) -> None:
        """Collect every dead child; the engine's own status goes to archonctl at once."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.main:
                self.status = status
                self.say("exited", status=status)

    def begin_stop(self, grace_s: float) -> None:
        """Ask everything to end; the loop sees to the rest."""
        if self.deadline is None:
            self.deadline = time.monotonic() + grace_s
            _signal_all(signal.SIGTERM)
            _signal_all(signal.SIGCONT)  # a stopped process does not see SIGTERM

    def obey(self, commands: list[str]) -> bool:
        """Act on commands; True if the guard must leave the engine alone and go."""
        for command in commands:
            if command == "release":
                return True
            self.begin_stop(0.0 if command == "kill" else self.spec["grace_s"])
            if command == "kill":
                self.deadline = time.monotonic()
        return False

    def press(self) -> bool:
        """Push a stop forward; True when nothing is left, or what is left does not die."""
        self.reap()
        left = descendants()
        if not left:
            self.reap()  # one may have died since, and its status is still to be told
            return True
        now = time.monotonic()
        if self.deadline is not None and now >= self.deadline:
            self.kill_deadline = self.kill_deadline or now + KILL_WAIT_S
            _signal_all(signal.SIGKILL)
            return now >= self.kill_deadline
        return False

    def run(self) -> None:
        """Until nothing of the engine is left, or archonctl releases it."""
        commands = self.read_spec()
        if commands is None or not self.spawn():
            return
        wake_r, wake_w = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake_w, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        connected = True
        while not self.obey(commands):
            commands = []
            if self.status is not None:
                self.begin_stop(self.spec["grace_s"])  # the engine is gone: its workers must not outlive it
            if self.deadline is not None and self.press():
                self.say("stopped", left=descendants())
                return
            watched: list[int | socket.socket] = [wake_r, self.sock] if connected else [wake_r]
            ready, _, _ = select.select(watched, [], [], 0.05 if self.deadline is not None else 0.25)
            if wake_r in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(wake_r, 4096)
            self.reap()
            bound_log(self.log_fd, self.spec["log"], self.spec["log_cap_bytes"], self.spec["log_head_bytes"])
            if self.sock in ready:
                got = self.lines()
                connected = got is not None
                commands = ["stop"] if got is None else got


def main() -> int:
    """Entry of the script: take the terminal's signals away from the engine's parent, then guard."""
    guard = Guard(socket.socket(fileno=0))
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, lambda *_: None)  # a handler, not SIG_IGN: exec would hand that on to the engine
    signal.signal(signal.SIGTERM, lambda *_: guard.begin_stop(guard.spec.get("grace_s", 0.0)))
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    guard.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
