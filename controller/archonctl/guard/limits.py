"""What one client, one connection and all of them together may take: bytes, seconds, connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, MutableMapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from archonctl.guard.values import Refusal, Refused

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


@dataclass(frozen=True)
class Limits:
    """Bounds of the guard; each is finite, so that nothing waits for ever."""

    body_bytes: int = 16 << 20
    """Of one request."""
    bodies_bytes: int = 256 << 20
    """Of all requests that are held at once."""
    head_bytes: int = 64 << 10
    """Request line and headers."""
    connections: int = 1024
    per_client: int = 128
    """Requests of one client at once, waiting ones included."""
    head_s: float = 15.0
    """From the first byte of a connection, or of its next request, to the end of the headers."""
    body_s: float = 15.0
    """Without a byte of a body that has not ended."""
    body_total_s: float = 300.0
    write_s: float = 60.0
    """For a client that does not read what is sent."""
    idle_s: float = 75.0
    """A connection without a request. More than the 60 s of usual proxies, which then close first."""
    wait_s: float = 120.0
    """In the queue for room, and for an engine that is away."""
    connect_s: float = 3.0
    first_s: float = 3600.0
    """To the engine's first byte: a long prompt's prefill and the engine's own queue."""
    gap_s: float = 600.0
    """Between two pieces of an answer."""
    let_go_s: float = 5.0
    """For an engine to end what nobody waits for any more; what it held is held as long."""
    drain_s: float = 600.0
    """For running answers after SIGTERM."""


class ClientGone(Exception):
    """The client closed its connection."""


class Bodies:
    """Reads bodies within the limits, and keeps the sum of what is held."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.held_bytes = 0

    @asynccontextmanager
    async def reading(self, receive: Receive, stated: int | None) -> AsyncIterator[bytes]:
        """The body, held until the context ends. ``stated``: its Content-Length. Raises Refused, ClientGone."""
        self._fits(stated or 0)
        size, pieces = 0, list[bytes]()
        try:
            async for piece in self._pieces(receive):
                size += len(piece)
                self.held_bytes += len(piece)
                self._fits(size, held=True)
                pieces.append(piece)
            body = b"".join(pieces)
            pieces.clear()
            yield body
        finally:
            self.held_bytes -= size

    async def _pieces(self, receive: Receive) -> AsyncIterator[bytes]:
        limits = self._limits
        ends = asyncio.get_running_loop().time() + limits.body_total_s
        while True:
            left = ends - asyncio.get_running_loop().time()
            try:
                async with asyncio.timeout(min(limits.body_s, left)):
                    message = await receive()
            except TimeoutError:
                bound = f"{limits.body_s:g} s without a byte, {limits.body_total_s:g} s in all"
                why = f"the body did not arrive in time ({bound})"
                raise Refused(Refusal(408, "request-too-slow", why)) from None
            if message["type"] != "http.request":
                raise ClientGone
            if message.get("body"):
                yield message["body"]
            if not message.get("more_body"):
                return

    def _fits(self, size: int, *, held: bool = False) -> None:
        limits = self._limits
        if size > limits.body_bytes:
            why = f"the body has {size:,} bytes or more, at most {limits.body_bytes:,} are taken"
            raise Refused(Refusal(413, "request-too-large", why))
        if self.held_bytes + (0 if held else size) > limits.bodies_bytes:
            why = f"requests of {self.held_bytes:,} bytes are held already, of {limits.bodies_bytes:,} that may be"
            raise Refused(Refusal(503, "guard-full", why, retry_after_s=5))


class PerClient:
    """Counts the requests of each client; a client without any takes no memory."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: dict[str, int] = {}

    @contextmanager
    def one(self, client: str) -> Iterator[None]:
        """One more request of this client, for as long as the context lasts. Raises Refused."""
        count = self._open.get(client, 0)
        if count >= self._most:
            why = f"{count:,} requests of this client are open already, of {self._most:,} that may be"
            raise Refused(Refusal(429, "client-busy", why, retry_after_s=1))
        self._open[client] = count + 1
        try:
            yield
        finally:
            if self._open[client] == 1:
                del self._open[client]
            else:
                self._open[client] -= 1


async def discard(receive: Receive, most_bytes: int = 4 << 20, most_s: float = 2.0) -> None:
    """Read on what a refused client still sends: closing on it would make its system throw the refusal away."""
    with suppress(TimeoutError):
        async with asyncio.timeout(most_s):
            while most_bytes > 0:
                message = await receive()
                if message["type"] != "http.request" or not message.get("more_body"):
                    return
                most_bytes -= len(message.get("body", b""))
