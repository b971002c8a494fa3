"""Starting and stopping units over D-Bus, where a job's own result can be waited for.

``systemctl is-failed`` says nothing of a unit that is between two tries; the job that was asked for ends once, and
says how: ``done``, ``failed``, ``timeout``, ``canceled``, ``dependency``, ``skipped`` (org.freedesktop.systemd1(5),
JobRemoved). pystemd is imported when a bus is opened, and not before: reading verbs do without it.
"""

from __future__ import annotations

import contextlib
import select
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Literal, Protocol

from archonctl.errors import HostRefusal
from archonctl.service.unit import UnitState, show, systemctl

if TYPE_CHECKING:
    from pystemd.dbuslib import DBus, DbusMessage

JobVerb = Literal["start", "stop"]

_NAME = b"org.freedesktop.systemd1"
_PATH = b"/org/freedesktop/systemd1"
_MANAGER = b"org.freedesktop.systemd1.Manager"
_METHODS = {"start": b"StartUnit", "stop": b"StopUnit"}
_DENIED = ("DBusInteractiveAuthorizationRequiredError", "DBusAccessDeniedError", "DBusAuthFailedError")
_BROKEN = (
    "DBusBaseError",
    "DBusNoReplyError",
    "DBusDisconnectedError",
    "DBusNoServerError",
    "DBusIOErrorError",
    "DBusNameHasNoOwnerError",
    "DBusServiceUnknownError",
    "DBusFileNotFoundError",
    "DBusTimeoutError",
)
_RETRY_S = 10.0
_INVERSE = ("RequiredBy", "RequisiteOf", "BoundBy", "ConsistsOf")
"""Who is stopped with a unit: the other ends of Requires=, Requisite=, BindsTo= and PartOf= (systemd.unit(5))."""


class Job(Protocol):
    """One start or stop that was asked for."""

    def wait(self, seconds: float) -> str | None:
        """Its result, or None if it has none after ``seconds``. Raises HostRefusal."""
        ...


class Systemd(Protocol):
    """What is asked of systemd; the real one is ``Bus``."""

    def show(self, unit: str) -> UnitState:
        """What it says of a unit now. Raises HostRefusal ``systemctl-failed``."""
        ...

    def dependants(self, unit: str) -> tuple[str, ...]:
        """Active units that stop when this one is stopped, directly or through others."""
        ...

    def reload(self) -> None:
        """Read all unit files anew. Raises HostRefusal."""
        ...

    def reset_failed(self, unit: str) -> None:
        """Forget a failure and the count of its starts; a unit that has neither is no error."""
        ...

    def begin(self, verb: JobVerb, unit: str) -> Job:
        """Ask for a start or a stop, and return at once. Raises HostRefusal."""
        ...


class _BusJob:
    def __init__(self, bus: Bus, path: str, verb: JobVerb, unit: str) -> None:
        self._bus = bus
        self._path = path
        self._verb = verb
        self._unit = unit

    def wait(self, seconds: float) -> str | None:
        """See ``Job``; a bus that breaks off is opened anew, and the result then read from the unit."""
        try:
            return self._bus.result_of(self._path, seconds)
        except HostRefusal:
            self._bus.reopen()
            if self._bus.has_job(self._path):
                return None
            state = self._bus.show(self._unit)
            reached = state.ended if self._verb == "stop" else state.active == "active"
            return "done" if reached else "failed"


class Bus:
    """systemd over the system bus, or a user's own over hers. Use ``open_bus``."""

    def __init__(self, *, user: bool = False) -> None:
        """Raises HostRefusal ``pystemd-missing`` or ``bus-unreachable``."""
        self._user = user
        self._results: dict[str, str] = {}
        self._bus = self._open()

    def _open(self) -> DBus:
        try:
            from pystemd.dbuslib import DBus
        except ImportError as err:
            raise HostRefusal(
                "pystemd-missing",
                f"units are started and stopped over D-Bus, and pystemd cannot be imported: {err}",
                hint="pip install 'archonctl[systemd]' (it is built against libsystemd: apt install libsystemd-dev "
                "pkg-config gcc), or apt install python3-pystemd",
            ) from None

        def removed(message: DbusMessage, **_given: object) -> None:
            message.process_reply(False)
            _number, path, _unit, result = message.body
            self._results[_text(path)] = _text(result)

        self._callback = removed  # libsystemd keeps a bare pointer to it
        bus = DBus(user_mode=self._user)
        with _refusing("the user bus" if self._user else "the system bus"):
            bus.open()
            bus.match_signal(_NAME, _PATH, _MANAGER, b"JobRemoved", removed, None)
            bus.call_method(_NAME, _PATH, _MANAGER, b"Subscribe", [])
        return bus

    def close(self) -> None:
        """Leave the bus."""
        self._bus.close()

    def reopen(self) -> None:
        """Open the bus again after it broke off (the bus, or PID 1, was started anew); bounded."""
        end = time.monotonic() + _RETRY_S
        while True:
            with contextlib.suppress(Exception):
                self._bus.close()
            try:
                self._bus = self._open()
                return
            except HostRefusal:
                if time.monotonic() > end:
                    raise
                time.sleep(0.2)

    def result_of(self, path: str, seconds: float) -> str | None:
        """The result of a job that was asked for here, waiting up to ``seconds``."""
        end = time.monotonic() + seconds
        with _refusing(path):
            ready = select.poll()
            ready.register(self._bus.get_fd(), select.POLLIN)
            while True:
                while self._process():
                    pass
                if path in self._results:
                    return self._results.pop(path)
                left = end - time.monotonic()
                if left <= 0:
                    return None
                ready.poll(left * 1000)

    def _process(self) -> bool:
        """Take one message; False if there is none. A signal handler that raises within pystemd raises here too."""
        try:
            return not self._bus.process().is_empty()
        except SystemError as err:
            if isinstance(err.__cause__, KeyboardInterrupt):
                raise err.__cause__ from None
            raise

    def has_job(self, path: str) -> bool:
        """True if the job is still in the queue."""
        number = int(path.rpartition("/")[2])
        try:
            self._call(b"GetJob", b"u", [number])
        except HostRefusal:
            return False
        return True

    def _call(self, method: bytes, signature: bytes, values: list[object]) -> object:
        from pystemd.dbuslib import apply_signature

        with _refusing(" ".join([method.decode(), *map(_text, values[:1])])):
            arguments = apply_signature(signature, values) if values else []
            return self._bus.call_method(_NAME, _PATH, _MANAGER, method, arguments).body

    def show(self, unit: str) -> UnitState:
        """See ``Systemd``."""
        return show(unit, user=self._user)

    def dependants(self, unit: str) -> tuple[str, ...]:
        """See ``Systemd``."""
        return dependants(unit, user=self._user)

    def reload(self) -> None:
        """See ``Systemd``."""
        self._call(b"Reload", b"", [])

    def reset_failed(self, unit: str) -> None:
        """See ``Systemd``."""
        with contextlib.suppress(HostRefusal):
            self._call(b"ResetFailedUnit", b"s", [unit.encode()])

    def begin(self, verb: JobVerb, unit: str) -> Job:
        """See ``Systemd``."""
        path = self._call(_METHODS[verb], b"ss", [unit.encode(), b"replace"])
        return _BusJob(self, _text(path), verb, unit)


@contextlib.contextmanager
def open_bus(*, user: bool = False) -> Iterator[Bus]:
    """A connection to systemd. Raises HostRefusal ``pystemd-missing`` or ``bus-unreachable``."""
    bus = Bus(user=user)
    try:
        yield bus
    finally:
        bus.close()


def dependants(unit: str, ask: Callable[..., str] = systemctl, *, user: bool = False) -> tuple[str, ...]:
    """Active units that are stopped with ``unit``, nearest first. Raises HostRefusal ``systemctl-failed``."""
    words = ("--user", "show") if user else ("show",)
    found: list[str] = []
    queue = [unit]
    while queue:
        text = ask(*words, queue.pop(0), f"--property={','.join(_INVERSE)}")
        names = [name for line in text.splitlines() for name in line.partition("=")[2].split()]
        new = [name for name in dict.fromkeys(names) if name not in found and name != unit]
        active = [name for name in new if ask(*words, name, "--property=ActiveState").strip() in _RUNNING]
        found += active
        queue += active
    return tuple(found)


_RUNNING = ("ActiveState=active", "ActiveState=activating", "ActiveState=reloading")


@contextlib.contextmanager
def _refusing(what: str) -> Iterator[None]:
    """pystemd's errors as one HostRefusal, whose hint says what would help."""
    from pystemd.dbusexc import DBusBaseError

    try:
        yield
    except DBusBaseError as err:
        kind, said = type(err).__name__, " ".join(str(err).split())[:300]
        if kind in _DENIED:
            hint = "run as root, or let a polkit rule allow it"
            raise HostRefusal("not-permitted", f"systemd refused {what}: {said}", hint=hint) from None
        raise HostRefusal(
            "bus-unreachable", f"{what}: {said}", hint="is systemd PID 1 here, and dbus running?"
        ) from None


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
