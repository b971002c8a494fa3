"""A guard in a thread of the test's own process, and raw bytes to throw at it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvloop

from archonctl.guard.auth import PassThrough
from archonctl.guard.limits import Limits
from archonctl.guard.serve import Running, Setup, serve
from archonctl.guard.values import Capacity


class Verified:
    """A capacity that was verified, as a test says."""

    def __init__(self, capacity: Capacity) -> None:
        self.capacity = capacity

    async def refresh(self) -> Capacity:
        return self.capacity


UNKNOWN = Capacity(None, None, None)


class Guarded(Running):
    """A running guard, and its access log."""

    lines: list[str]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def guarded(
    engine_port: int,
    engine: str = "llamacpp",
    capacity: Capacity = UNKNOWN,
    limits: Limits | None = None,
    clients: Any = None,
    placement: Any = None,
    engine_key: str = "",
) -> Iterator[Guarded]:
    """A guard before the engine at a port of this machine."""
    setup = Setup(
        engine,
        f"http://127.0.0.1:{engine_port}",
        clients or PassThrough(),
        ("127.0.0.1", 0),
        ("127.0.0.1", 0),
        limits or Limits(),
        engine_key,
    )
    lines: list[str] = []
    found: list[Running] = []
    failed: list[BaseException] = []
    ready = threading.Event()

    def on_ready(running: Running) -> None:
        found.append(running)
        ready.set()

    def run() -> None:
        try:
            uvloop.run(serve(setup, lambda _: Verified(capacity), lines.append, on_ready, placement))
        except BaseException as error:  # noqa: BLE001  told by the test
            failed.append(error)
        finally:
            ready.set()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert ready.wait(120)
    assert found, failed
    guard = Guarded(found[0].port, found[0].admin_port, found[0].admission, found[0].server)
    guard.lines = lines
    try:
        yield guard
    finally:
        guard.stop()
        thread.join(120)
        assert not thread.is_alive(), "the guard does not end"
        assert not failed, failed


def raw(port: int, sent: bytes, *, timeout: float = 60.0, shut: bool = False) -> bytes:
    """Everything that comes back for these bytes, until the other side closes (ask it to)."""
    with socket.create_connection(("127.0.0.1", port), timeout=timeout) as sock:
        sock.sendall(sent)
        if shut:
            sock.shutdown(socket.SHUT_WR)
        got = b""
        while True:
            try:
                piece = sock.recv(65536)
            except ConnectionResetError:
                return got
            if not piece:
                return got
            got += piece
