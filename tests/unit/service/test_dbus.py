"""Talking to systemd over D-Bus: what is missing is said, and a result is the job's own."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import ClassVar

import pytest

from archonctl.errors import HostRefusal
from archonctl.service import dbus
from archonctl.service.unit import UnitState

JOB = b"/org/freedesktop/systemd1/job/7"


class Message:
    """What pystemd gives for a message."""

    def __init__(self, body: object = None, *, empty: bool = False) -> None:
        self.body = body
        self._empty = empty

    def process_reply(self, _headers: bool) -> None:
        """Reads it."""

    def is_empty(self) -> bool:
        """True where there was none."""
        return self._empty


class Error(Exception):
    """pystemd's base error."""


class DBusAccessDeniedError(Error):
    """What polkit says no to."""


class FakeBus:
    """A bus on which every job ends as ``results`` say, one signal a wait."""

    results: ClassVar[list[tuple[bytes, bytes]]] = []
    refusal: ClassVar[Error | None] = None
    opened: ClassVar[int] = 0

    def __init__(self, *, user_mode: bool = False) -> None:
        self._read, self._write = os.pipe()
        os.write(self._write, b"x")

    def open(self) -> None:
        type(self).opened += 1

    def close(self) -> None:
        os.close(self._read)
        os.close(self._write)

    def match_signal(
        self, _sender: bytes, _path: bytes, _interface: bytes, _member: bytes, call: object, _data: object
    ) -> None:
        self._call = call

    def get_fd(self) -> int:
        return self._read

    def call_method(self, _name: bytes, _path: bytes, _interface: bytes, method: bytes, _values: object) -> Message:
        if method != b"Subscribe" and self.refusal is not None:
            raise self.refusal
        return Message(JOB)

    def process(self) -> Message:
        if not self.results:
            return Message(empty=True)
        path, result = self.results.pop(0)
        if result == b"broken":
            raise Error("connection reset")
        self._call(Message([7, path, b"x.service", result]), error=None, userdata=None)  # type: ignore[operator]
        return Message()


@contextmanager
def pystemd(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[FakeBus]]:
    """The fake in pystemd's place."""
    library, errors = ModuleType("pystemd.dbuslib"), ModuleType("pystemd.dbusexc")
    Error.__name__ = "DBusBaseError"
    library.DBus, library.apply_signature = FakeBus, lambda _signature, values: values  # type: ignore[attr-defined]
    errors.DBusBaseError = Error  # type: ignore[attr-defined]
    for name, module in (("pystemd", ModuleType("pystemd")), ("pystemd.dbuslib", library), ("pystemd.dbusexc", errors)):
        monkeypatch.setitem(sys.modules, name, module)
    FakeBus.results, FakeBus.refusal, FakeBus.opened = [], None, 0
    yield FakeBus


def test_without_pystemd_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pystemd.dbuslib", None)
    with pytest.raises(HostRefusal) as caught, dbus.open_bus():
        pass
    assert caught.value.code == "pystemd-missing"
    assert "libsystemd-dev" in caught.value.hint


def test_a_result_is_that_of_the_job_that_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    with pystemd(monkeypatch) as fake, dbus.open_bus() as bus:
        job = bus.begin("start", "x.service")
        fake.results = [(b"/org/freedesktop/systemd1/job/6", b"failed")]
        assert job.wait(0) is None
        fake.results = [(JOB, b"timeout")]
        assert job.wait(0) == "timeout"


def test_a_bus_that_breaks_off_is_opened_again_and_the_unit_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    state = UnitState("active", "running", "success", 7, 0, 0, 1, "i", "", "", 0)
    monkeypatch.setattr(dbus, "show", lambda _unit, **_user: state)
    with pystemd(monkeypatch) as fake, dbus.open_bus() as bus:
        job = bus.begin("start", "x.service")
        fake.results = [(JOB, b"broken")]
        assert job.wait(0) is None  # the job is still queued
        fake.results = [(JOB, b"broken")]
        fake.refusal = Error("no such job")
        assert job.wait(0) == "done"
        assert fake.opened == 3


def test_what_polkit_denies_names_what_would_help(monkeypatch: pytest.MonkeyPatch) -> None:
    with pystemd(monkeypatch) as fake, dbus.open_bus() as bus:
        fake.refusal = DBusAccessDeniedError("no")
        with pytest.raises(HostRefusal) as caught:
            bus.begin("stop", "x.service")
        assert caught.value.code == "not-permitted"
        assert "polkit" in caught.value.hint


def test_dependants_are_followed_through_others_and_only_what_runs_counts() -> None:
    answers = {
        "a": "RequiredBy=b.service\nBoundBy=\nConsistsOf=c.service b.service\n",
        "b.service": "RequiredBy=d.service a\n",
        "d.service": "",
    }
    active = {"b.service": "active", "c.service": "inactive", "d.service": "activating"}

    def ask(_verb: str, unit: str, wanted: str) -> str:
        return f"ActiveState={active[unit]}\n" if wanted.endswith("ActiveState") else answers[unit]

    assert dbus.dependants("a", ask) == ("b.service", "d.service")


def test_this_test_leaves_pystemd_alone(tmp_path: Path) -> None:
    assert getattr(sys.modules.get("pystemd.dbuslib"), "DBus", None) is not FakeBus


@pytest.mark.parametrize(
    ("active", "sub", "ended"),
    [
        ("active", "running", False),
        ("deactivating", "stop-sigterm", False),
        ("activating", "auto-restart", False),
        ("failed", "failed-before-auto-restart", False),
        ("inactive", "dead-before-auto-restart", False),
        ("failed", "failed", True),
        ("inactive", "dead", True),
    ],
)
def test_a_unit_between_two_tries_has_not_ended(active: str, sub: str, ended: bool) -> None:
    assert UnitState(active, sub, "exit-code", 0, 0, 1, 1, "i", "", "", 0).ended is ended
