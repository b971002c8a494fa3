"""What runs, as files: one folder an endpoint with its boot log, its releases and ``running.json``.

Every file is written whole (a temporary file, fsync, rename, fsync of the folder), so that a reader and a
power cut see the old one or the new one. Nothing is believed without the kernel: ``running`` checks that the
process with that number is the one that was started.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from archonctl.errors import HostRefusal, UsageError
from archonctl.service import procfs
from archonctl.service.operator import named, operator

SYSTEM_STATE = Path("/var/lib/archon")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_SCHEMA = "archonctl.running/1"

Mode = Literal["child", "detached", "unit"]


@dataclass(frozen=True, slots=True)
class Running:
    """One started engine. ``pid``, ``start_ticks`` and ``boot_id`` name the process beyond doubt.

    ``log`` is a file, or empty where the journal of ``unit`` has it. ``started_at`` is Unix time in seconds.
    """

    endpoint: str
    mode: Mode
    pid: int
    start_ticks: int
    boot_id: str
    argv_sha256: str
    host: str
    port: int
    log: str
    release: str
    declaration: str
    started_at: float
    unit: str = ""
    invocation: str = ""
    """systemd's id of this run of the unit: the journal is read by it."""

    @property
    def identity(self) -> procfs.Identity:
        """The process."""
        return procfs.Identity(self.pid, self.start_ticks, self.boot_id)


def argv_digest(argv: Sequence[str]) -> str:
    """SHA-256 of an argv, its elements separated by NUL as in ``/proc/PID/cmdline``."""
    return hashlib.sha256("\0".join(argv).encode("utf-8", "surrogateescape")).hexdigest()


def state_dir(environ: Mapping[str, str], uid: int | None = None, system: Path = SYSTEM_STATE) -> Path:
    """Where state is kept; the folder need not exist yet.

    ``$ARCHON_STATE_DIR``; else as root ``/var/lib/archon`` where it can be written or made; else
    ``$XDG_STATE_HOME/archonctl`` or ``~/.local/state/archonctl`` (XDG base directory specification; a
    relative value there is ignored).
    """
    if chosen := environ.get("ARCHON_STATE_DIR"):
        return Path(chosen).absolute()
    is_root = (os.geteuid() if uid is None else uid) == 0
    if is_root and os.access(system if system.exists() else system.parent, os.W_OK):
        return system
    xdg = environ.get("XDG_STATE_HOME", "")
    base = Path(xdg) if xdg.startswith("/") else Path(environ.get("HOME") or "/") / ".local/state"
    return base / "archonctl"


class EndpointState:
    """The folder of one endpoint."""

    def __init__(self, root: Path, endpoint: str) -> None:
        """Raises UsageError ``endpoint-name`` for a name that is no plain file name."""
        if not _NAME.fullmatch(endpoint):
            raise UsageError(
                "endpoint-name",
                f"{endpoint!r} cannot name a folder",
                hint="letters, digits, dot, dash and underscore; at most 100",
            )
        self.endpoint = endpoint
        self.folder = root / endpoint
        self.log = self.folder / "boot.log"
        self.releases = self.folder / "releases"
        self._file = self.folder / "running.json"

    def create(self) -> None:
        """Make the folder. Others may enter it, since a unit's own user reads its release there; the boot log is the
        owner's alone (an engine's log may carry what people asked it).

        Raises HostRefusal ``state-unwritable``.
        """
        with _refusing(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o755)
            if not os.access(self.folder, os.W_OK | os.X_OK):
                raise PermissionError(13, "Permission denied")

    def write(self, running: Running) -> None:
        """Record what runs. Raises HostRefusal ``state-unwritable``."""
        text = json.dumps({"schema": _SCHEMA, **asdict(running)}, indent=2) + "\n"
        with _refusing(self._file):
            atomic_write(self._file, text.encode())

    def clear(self) -> None:
        """Forget what ran. Raises HostRefusal ``state-unwritable``."""
        with _refusing(self._file):
            self._file.unlink(missing_ok=True)

    def recorded(self) -> Running | None:
        """What the file says, alive or not. Raises HostRefusal ``state-unreadable`` for anything but our file."""
        try:
            raw = self._file.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as err:
            raise _unreadable(self._file, err.strerror or str(err)) from None
        try:
            value = json.loads(raw)
            if not isinstance(value, dict) or value.pop("schema", None) != _SCHEMA:
                raise ValueError(f"not {_SCHEMA}")
            found = Running(**{name: value[name] for name in Running.__slots__})
            wrong = [n for n, kind in _KINDS.items() if type(getattr(found, n)) is not kind]
        except (ValueError, TypeError, KeyError, RecursionError) as err:
            raise _unreadable(self._file, f"{type(err).__name__} {err}") from None
        if wrong or found.pid <= 1:
            raise _unreadable(self._file, f"wrong value for {', '.join(wrong) or 'pid'}")
        return found

    def running(self) -> Running | None:
        """What runs, checked against ``/proc``: None if that process is gone."""
        found = self.recorded()
        return found if found and procfs.is_alive(found.identity) else None

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the endpoint against another start or stop; released by the kernel if this process dies.

        Raises HostRefusal ``up-in-progress`` if another process holds it.
        """
        self.create()
        path = self.folder / "lock"
        with _refusing(path):
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                pid, _, who = named(os.pread(fd, 160, 0).decode("ascii", "replace")).partition(" ")
                holder = f"archonctl (pid {pid}{f', {who}' if who else ''})" if pid else "another archonctl"
                raise HostRefusal(
                    "up-in-progress",
                    f"{holder} is starting or supervising {self.endpoint}",
                    where=str(path),
                    hint="wait for it, or end it with Ctrl-C or SIGTERM",
                ) from None
            with contextlib.suppress(OSError):  # the holder's number is a courtesy; a full disk must not matter
                os.ftruncate(fd, 0)
                os.pwrite(fd, f"{os.getpid()} {operator(os.environ)}\n".encode(), 0)
            yield
        finally:
            os.close(fd)


_KINDS: dict[str, type] = {
    "endpoint": str,
    "mode": str,
    "pid": int,
    "start_ticks": int,
    "boot_id": str,
    "argv_sha256": str,
    "host": str,
    "port": int,
    "log": str,
    "release": str,
    "declaration": str,
    "started_at": float,
    "unit": str,
    "invocation": str,
}


@contextlib.contextmanager
def _refusing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as err:
        raise HostRefusal(
            "state-unwritable",
            f"{err.strerror or err}",
            where=str(path),
            hint="set ARCHON_STATE_DIR to a folder that this user may write",
        ) from None


def _unreadable(path: Path, why: str) -> HostRefusal:
    return HostRefusal(
        "state-unreadable", f"cannot tell what runs: {why}", where=str(path), hint="look at it, then remove it"
    )


@contextlib.contextmanager
def readable_by_all() -> Iterator[None]:
    """Make folders and files with the modes asked for, whatever umask root has: a unit's account reads them."""
    before = os.umask(0o022)
    try:
        yield
    finally:
        os.umask(before)


def atomic_write(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Replace ``path`` by ``data`` so that a crash leaves the old or the new content. Raises OSError."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    try:
        try:
            os.fchmod(fd, mode)  # whatever the umask
            view = memoryview(data)
            while view:
                view = view[os.write(fd, view) :]
            os.fsync(fd)
        finally:
            os.close(fd)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def stop_process(running: Running, grace_s: float = 10.0) -> bool:
    """End a recorded engine and its descendants: SIGTERM, grace, SIGKILL. False if it was gone already.

    Only the very process that was recorded is touched, and what descends from it or shares its session.
    Raises HostRefusal ``engine-unkillable`` if something is left.
    """
    if not procfs.is_alive(running.identity):
        return False
    family = {pid: procfs.identity(pid) for pid in procfs.tree(running.pid)}
    _signal(family, signal.SIGTERM)
    _signal(family, signal.SIGCONT)
    deadline = time.monotonic() + grace_s
    while _left(family) and time.monotonic() < deadline:
        time.sleep(0.05)
    deadline = time.monotonic() + 10.0
    while _left(family):
        for pid in procfs.tree(running.pid):
            family.setdefault(pid, procfs.identity(pid))
        _signal(family, signal.SIGKILL)
        if time.monotonic() > deadline:
            names = ", ".join(map(str, _left(family)))
            raise HostRefusal("engine-unkillable", f"pid {names} did not end, SIGKILL included")
        time.sleep(0.05)
    return True


def _left(family: Mapping[int, procfs.Identity | None]) -> list[int]:
    return [pid for pid, who in family.items() if who is not None and procfs.is_alive(who)]


def _signal(family: Mapping[int, procfs.Identity | None], number: int) -> None:
    for pid in _left(family):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue
        except PermissionError as err:
            raise HostRefusal(
                "not-permitted", f"may not signal pid {pid}: {err.strerror}", hint="run as the user who started it"
            ) from None
