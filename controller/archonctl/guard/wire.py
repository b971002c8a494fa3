"""One connection to the engine for one request: the bytes of it, and how its answer is framed (llhttp, by httptools).

It ends in one of three ways: the answer is whole, it broke off (``Torn``), or it is no HTTP/1.1 (``NotHttp``).
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from contextlib import suppress
from typing import cast

import httptools

MOST_HELD_BYTES = 256 << 10
"""Of an answer that its client does not take: then the engine is not read on."""


class Torn(Exception):
    """The engine closed the connection before its answer's end."""


class NotHttp(Exception):
    """What the engine sent is no HTTP/1.1 answer, or could be read in two ways."""


class Wire(asyncio.Protocol):
    """The protocol of one connection; made by ``loop.create_connection``.

    ``head_bytes``: how large the head of an answer may be, those of provisional ones (1xx) included; and what comes
    between two pieces of its body, or after the last (sizes of chunks, trailers).
    """

    def __init__(self, head_bytes: int) -> None:
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.whole = False
        """True once the answer has come to its end."""
        self._head_bytes = self._head_left = head_bytes
        self._has_head = self._without_body = False
        self._parser = httptools.HttpResponseParser(self)
        self._pieces: deque[bytes] = deque()
        self._held_bytes = 0
        self._wrong: Exception | None = None
        self._ends_with_connection = True
        self._sent = self._closed = self._paused = self._dropping = False
        self._waiter: asyncio.Future[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None

    def send(self, data: bytes, *, without_body: bool) -> None:
        """Send a request. ``without_body``: its answer has none, whatever its head says (HEAD)."""
        self._sent, self._without_body = True, without_body
        if self._transport is not None:
            self._transport.write(data)

    @property
    def is_fresh(self) -> bool:
        """True while it is open and nothing was sent either way."""
        lives = self._transport is not None and not self._transport.is_closing()
        return lives and not self._sent and self._wrong is None

    async def head(self, within_s: float) -> None:
        """Until ``status`` and ``headers`` are there. Raises Torn, NotHttp, TimeoutError."""
        while not self._has_head:
            await self._more(within_s)

    async def piece(self, within_s: float) -> bytes:
        """More of the body, nothing at its end. Raises Torn, NotHttp, TimeoutError."""
        while not self._pieces and not self.whole:
            await self._more(within_s)
        data = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces.clear()
        self._held_bytes = 0
        if self._paused and not self._closed and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()
        return data

    async def let_go(self, within_s: float) -> None:
        """Say that nobody listens any more, and wait for the engine's end of the connection."""
        self._dropping = True
        self._pieces.clear()
        if self._transport is None or self._closed:
            return
        with suppress(OSError, TimeoutError, RuntimeError):
            self._transport.resume_reading()
            # a duplicate, since neither event loop offers this for TLS, nor past what is still to be sent
            with socket.socket(fileno=os.dup(self._transport.get_extra_info("socket").fileno())) as same:
                same.shutdown(socket.SHUT_WR)
            ends = self._loop.time() + within_s
            while not self._closed:
                await self._wait(ends - self._loop.time())

    def give_up(self) -> None:
        """Who waits for more of the answer is told that it broke off."""
        self._wrong = self._wrong or Torn()
        self._wake()

    def close(self) -> None:
        """End it now, whatever is still to come."""
        if self._transport is not None:
            self._transport.abort()

    async def _more(self, within_s: float) -> None:
        if self._wrong is not None:
            raise self._wrong
        if self._closed:
            raise Torn
        await self._wait(within_s)

    async def _wait(self, within_s: float) -> None:
        self._waiter = waiter = self._loop.create_future()
        timer = self._loop.call_later(max(0.0, within_s), self._late, waiter)
        try:
            await waiter
        finally:
            timer.cancel()
            self._waiter = None

    @staticmethod
    def _late(waiter: asyncio.Future[None]) -> None:
        if not waiter.done():
            waiter.set_exception(TimeoutError())

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # what asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is open."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """More of an answer."""
        if self._dropping or self.whole or self._wrong is not None:
            return
        if not self._sent:  # nothing that comes before a request is an answer to it
            self._wrong = NotHttp()
            return
        self._head_left -= len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            if not self.whole:  # else it is what came after the answer's end, and is for nobody
                self._wrong = NotHttp()
        if self._head_left < 0 and not self.whole:
            self._wrong = NotHttp()
        self._wake()
        if self._held_bytes > MOST_HELD_BYTES and not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()

    def connection_lost(self, error: Exception | None) -> None:
        """It is closed, by whomever."""
        self._closed = True
        if self._has_head and self._ends_with_connection and error is None and self._wrong is None:
            self.whole = True
        del self._parser  # it holds this object, and both would wait for the collector
        self._wake()

    # what the parser calls

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header; or, after the head, a trailer, which is for this connection only."""
        if not self._has_head:
            self.headers.append((name, value.strip(b" \t")))

    def on_headers_complete(self) -> None:
        """The end of a head. One that is provisional is not passed on. Raises NotHttp."""
        if self._has_head:
            return
        self.status = self._parser.get_status_code()
        if 100 <= self.status < 200:
            self.headers.clear()
            return
        lengths = [value for name, value in self.headers if name.lower() == b"content-length"]
        codings = [value.lower() for name, value in self.headers if name.lower() == b"transfer-encoding"]
        is_http = self._parser.get_http_version() in ("1.0", "1.1") and 200 <= self.status < 600  # RFC 9110, 15
        if not is_http or codings not in ([], [b"chunked"]):
            raise NotHttp  # which ends the parser: what follows is not read as another answer
        self._has_head, self._ends_with_connection = True, not lengths and not codings
        self.whole = self._without_body

    def on_body(self, data: bytes) -> None:
        """More of the body."""
        if self._has_head and not self.whole:
            self._pieces.append(data)
            self._held_bytes += len(data)
            self._head_left = self._head_bytes

    def on_message_complete(self) -> None:
        """The end of an answer, or of a provisional one."""
        if self._has_head:
            self.whole = True
