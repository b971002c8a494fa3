"""Where a boot log comes from besides a file: the journal of a unit, a container, and any log while it is written."""

from __future__ import annotations

import os
import select
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Protocol

from archonctl.errors import HostRefusal, UsageError
from archonctl.ledger.reader import LedgerReader
from archonctl.ledger.values import Change
from archonctl.service.artefact import RUNTIMES
from archonctl.service.journal import journal_command
from archonctl.service.logtail import LINE_LIMIT_BYTES, READ_BYTES
from archonctl.service.unit import show

_ANSWER_S = 20.0
_NO_LOG = ("none", "passthrough", "passthrough-tty")
"""Log drivers of podman and docker that keep nothing."""
_POLL_S = 0.05
SETTLE_S = 1.0
"""How long a followed log is read on once the engine serves: what it settles to is printed about then."""


class Bytes(Protocol):
    """A log that may still grow."""

    def more(self, seconds: float) -> bytes | None:
        """What is new, after waiting for it up to ``seconds``: b"" if nothing came, None if nothing will."""
        ...


def unit_command(name: str, *, follow: bool = False) -> list[str]:
    """The journalctl command for the last start of a unit, of the system's manager or else of the user's.

    A name without a suffix is that of an installed endpoint (``archon@NAME.service``) or of a service. Raises
    HostRefusal ``unit-never-started`` and ``systemctl-failed``.
    """
    names = [name] if "." in name else [f"{name}.service"]
    if "." not in name and "@" not in name:
        names.insert(0, f"archon@{name}.service")
    for user in (False, True):
        for unit in names:
            try:
                invocation = show(unit, user=user).invocation
            except HostRefusal:
                if not user:
                    raise
                continue  # no manager of this user: what the system's manager says is the answer
            if invocation:
                words = journal_command(unit, invocation, user=user)
                return [*words, "--follow", "--no-tail"] if follow else words
    raise HostRefusal(
        "unit-never-started", f"{' or '.join(names)} has not been started since the machine booted", where=name
    )


def container_command(name: str, *, follow: bool = False) -> list[str]:
    """``podman logs`` or ``docker logs`` of a container's last start, whichever has it. Raises HostRefusal
    ``container-unknown``, and ``log-unreadable`` where its log driver keeps none."""
    if name.startswith("-"):
        raise UsageError("container-unknown", f"{name!r} is no name of a container", where="--container")
    said: list[str] = []
    for runtime in RUNTIMES:
        asked = "{{.State.StartedAt}}\n{{.HostConfig.LogConfig.Type}}"
        words = [runtime, "inspect", "--type", "container", "--format", asked, name]
        try:
            done = subprocess.run(
                words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_ANSWER_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as err:
            said.append(f"{runtime}: {getattr(err, 'strerror', None) or 'no answer'}")
            continue
        if done.returncode:
            said.append(f"{runtime}: {(done.stderr.strip().splitlines() or ['not found'])[-1][:200]}")
            continue
        started, _, driver = done.stdout.partition("\n")
        if driver.strip() in _NO_LOG:
            raise HostRefusal(
                "log-unreadable",
                f"{runtime} keeps no log of {name}: its log driver is {driver.strip()}",
                where=name,
                hint="what it prints is with what started it: --unit NAME where that is a unit",
            )
        since = _since(started)
        return [runtime, "logs", *(["--since", since] if since else []), *(["--follow"] if follow else []), name]
    raise HostRefusal("container-unknown", "; ".join(said), where=name)


def _since(started: str) -> str:
    """RFC 3339 as both take it; podman prints "2026-01-01 10:00:00.123 +0100 CET". Empty where it says nothing."""
    words = started.split()
    if started.startswith("0001"):
        return ""
    if len(words) >= 3 and len(words[2]) == 5:
        return f"{words[0]}T{words[1]}{words[2][:3]}:{words[2][3:]}"
    return words[0] if len(words) == 1 else ""


@contextmanager
def output_of(command: list[str]) -> Iterator[IO[bytes]]:
    """What a command writes, both streams as one; it is ended when the block is left. Raises HostRefusal
    ``log-unreadable`` where it cannot be run or failed."""
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as err:
        raise HostRefusal("log-unreadable", f"{command[0]}: {err.strerror}", where=" ".join(command)) from None
    assert process.stdout is not None
    status: int | None = None
    try:
        yield process.stdout
        with suppress(subprocess.TimeoutExpired):
            status = process.wait(0.2)  # it still writes where a log is followed: nobody asks how it ended
    finally:
        process.stdout.close()
        process.terminate()
        process.wait()
    if status:
        message = f"{command[0]} ended with {status}: what was read may not be all of it"
        raise HostRefusal("log-unreadable", message, where=" ".join(command), hint="run it by hand: it says why")


class Pipe:
    """``Bytes`` over a pipe or a terminal."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._fd = stream.fileno()

    def more(self, seconds: float) -> bytes | None:
        """See ``Bytes``."""
        if not select.select([self._fd], [], [], seconds)[0]:
            return b""
        return os.read(self._fd, READ_BYTES) or None


class Growing:
    """``Bytes`` over a file that grows, is cut short, or is replaced by another of its name; it has no end."""

    def __init__(self, path: Path) -> None:
        """Raises UsageError ``ledger-unreadable``."""
        self._path = path
        try:
            self._file = path.open("rb", buffering=0)
        except OSError as err:
            raise UsageError("ledger-unreadable", f"cannot read {path}: {err.strerror or err}") from err

    def more(self, seconds: float) -> bytes | None:
        """See ``Bytes``."""
        data = self._file.read(READ_BYTES)
        if not data:
            time.sleep(min(seconds, _POLL_S))
            self._turn()
        return data or b""

    def _turn(self) -> None:
        with suppress(OSError):
            here, there = os.fstat(self._file.fileno()), self._path.stat()
            if (here.st_dev, here.st_ino) != (there.st_dev, there.st_ino):
                old, self._file = self._file, self._path.open("rb", buffering=0)
                old.close()
            elif here.st_size < self._file.tell():
                self._file.seek(0)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def follow(source: Bytes, reader: LedgerReader, tell: Callable[[Change], None], seconds: float) -> None:
    """Feed a reader with a log while it is written; returns when the engine serves, the log ends, or time is up.

    ``tell`` is called for each line that changes the ledger.
    """
    end = time.monotonic() + seconds
    pending = b""
    while (left := end - time.monotonic()) > 0:
        data = source.more(min(left, 1.0))
        if data is None:
            break
        *lines, pending = (pending + data).split(b"\n")
        pending = pending[:LINE_LIMIT_BYTES]
        for line in lines:
            if change := reader.feed(line):
                tell(change)
                if change.ready:
                    end = min(end, time.monotonic() + SETTLE_S)
    if pending and (change := reader.feed(pending)):
        tell(change)
