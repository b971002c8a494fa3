"""The journal of one start of a unit, as a ``logtail.LogSource``."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import time
from pathlib import Path

from archonctl.errors import HostRefusal
from archonctl.service.logtail import READ_BYTES, LineSplitter
from archonctl.service.process import LOG_HEAD_BYTES

JOURNAL_SOCKET = "/run/systemd/journal/socket"
KEPT_S = 10.0
START_COMMAND = "archon-start"
"""The program that execs the engine in an installed unit: journald names what both of them write by it."""


def journal_command(unit: str, invocation: str, *, user: bool = False) -> list[str]:
    """What the unit's engine wrote; systemd's words about the unit are not the engine's, nor are those of the checks
    before and after it in a unit of the template ``archon@``. ``user``: a unit of the user's own manager."""
    match = [f"_SYSTEMD_{'USER_' if user else ''}UNIT={unit}", f"_SYSTEMD_INVOCATION_ID={invocation}"]
    if unit.startswith("archon@"):
        match.append(f"SYSLOG_IDENTIFIER={START_COMMAND}")
    return ["journalctl", "--quiet", "--output=cat", "--all", "--no-pager", *match]


class JournalTail:
    """Follows the journal through ``journalctl``, and keeps the beginning in a file.

    The journal rotates, and the boot ledger must still be there for a later ``probe``. journalctl ends by
    itself when its reader is gone.
    """

    def __init__(
        self, unit: str, invocation: str, keep: Path, keep_bytes: int = LOG_HEAD_BYTES, *, user: bool = False
    ) -> None:
        """Raises HostRefusal ``journal-unreadable`` or ``log-unwritable``."""
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
            self._keep = os.open(keep, flags, 0o600)
        except OSError as err:
            raise HostRefusal("log-unwritable", err.strerror or str(err), where=str(keep)) from None
        try:
            self._journal = subprocess.Popen(
                [*journal_command(unit, invocation, user=user), "--follow", "--no-tail"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as err:
            os.close(self._keep)
            raise HostRefusal("journal-unreadable", f"journalctl: {err.strerror}") from None
        assert self._journal.stdout is not None
        self._fd = self._journal.stdout.fileno()
        os.set_blocking(self._fd, False)
        self._room = keep_bytes
        self._split = LineSplitter()
        self._unit, self._invocation, self._user = unit, invocation, user
        self._expected = 0
        self.seen_bytes = 0
        self.skipped_bytes = 0

    def read(self) -> list[str]:
        """See ``LogSource``."""
        data = b""
        with contextlib.suppress(BlockingIOError):
            data = os.read(self._fd, READ_BYTES)
        self.seen_bytes += len(data)
        self._store(data)
        return self._split.feed(data)

    def _store(self, data: bytes) -> None:
        kept = data[: self._room]
        self._room -= len(kept)
        with contextlib.suppress(OSError):  # a full disk costs the copy, not the start: the journal has it too
            while kept:
                kept = kept[os.write(self._keep, kept) :]

    def rest(self) -> str:
        """See ``LogSource``."""
        return self._split.rest()

    def expect(self) -> None:
        """See ``LogSource``; lets journald write out first what it has received."""
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(
                ["journalctl", "--sync"], stdin=subprocess.DEVNULL, capture_output=True, timeout=10, check=False
            )
        self._expected = len(journal_text(self._unit, self._invocation, user=self._user))

    @property
    def behind(self) -> bool:
        """See ``LogSource``."""
        return self.seen_bytes < self._expected

    def skip_to_end(self) -> None:
        """See ``LogSource``; journalctl holds back what is not read, so there is no backlog to pass over."""

    def close(self) -> None:
        """End journalctl."""
        self._journal.terminate()
        with contextlib.suppress(OSError):
            os.close(self._keep)
        if self._journal.stdout is not None:
            self._journal.stdout.close()
        self._journal.wait()


def check_kept() -> None:
    """Write a line and read it back: without a journal there is no evidence, and an engine was stopped for nothing.

    Raises HostRefusal ``journal-not-kept``.
    """
    token = os.urandom(8).hex()
    entry = f"MESSAGE=archonctl looks whether the journal keeps what is written\nPRIORITY=7\nARCHON_TOKEN={token}\n"
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
            out.sendto(entry.encode(), JOURNAL_SOCKET)
        end = time.monotonic() + KEPT_S
        while True:
            for words in (["--sync"], ["--quiet", "--output=cat", "--lines=1", f"ARCHON_TOKEN={token}"]):
                command = ["journalctl", "--no-pager", *words]
                done = subprocess.run(
                    command, stdin=subprocess.DEVNULL, capture_output=True, timeout=KEPT_S, check=False
                )
            if done.stdout.strip():
                return
            if time.monotonic() > end:
                raise _not_kept("what is written to it now cannot be read back")
            time.sleep(0.2)
    except (OSError, subprocess.TimeoutExpired) as err:
        raise _not_kept(f"{type(err).__name__} {err}") from None


def _not_kept(why: str) -> HostRefusal:
    hint = "journald.conf: Storage=persistent or auto; systemctl status systemd-journald; for a user: systemd-journal"
    return HostRefusal("journal-not-kept", f"the journal would give no evidence of a start: {why}", hint=hint)


def journal_text(unit: str, invocation: str, limit_bytes: int = LOG_HEAD_BYTES, *, user: bool = False) -> bytes:
    """The beginning of what one start of a unit wrote. Raises HostRefusal ``journal-unreadable``."""
    try:
        with subprocess.Popen(
            journal_command(unit, invocation, user=user),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as journal:
            assert journal.stdout is not None
            assert journal.stderr is not None
            data = journal.stdout.read(limit_bytes)
            journal.stdout.close()
            said = journal.stderr.read(4096).decode("utf-8", "replace").strip()
    except OSError as err:
        raise HostRefusal("journal-unreadable", f"journalctl: {err.strerror}", where=unit) from None
    if not data and journal.returncode != 0:
        raise HostRefusal("journal-unreadable", said or f"journalctl: exit {journal.returncode}", where=unit)
    return data
