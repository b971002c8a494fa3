"""The engine behind the guard, over one connection a request.

Connections are not kept for the next request, on purpose: what is left of an aborted answer can then never be read as
the start of another client's, and an idle connection cannot hold one of the few threads that llama-server answers
with (cpp-httplib has a thread a connection). On loopback it costs 0.3 ms.

A connection that is left in the middle of an answer is closed in one direction first, and the engine's closing is
waited for: until then the engine works on, and what it holds for that request must not be given to another.
llama-server looks once a second whether its client is still there, and queues the cancelling before it closes (b11434
server-queue.cpp).
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import aiohttp
from yarl import URL

from archonctl.guard.limits import Limits
from archonctl.guard.values import Refusal

Headers = Sequence[tuple[bytes, bytes]]

_HOP = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer transfer-encoding "
    b"upgrade".split()
)
"""For one connection only (RFC 9110, 7.6.1)."""
_OURS = frozenset((b"host", b"content-length", b"expect"))
"""Of a request: said anew, for the body that was read."""
_OUTLIVES = b"x-conversation-id"
"""With it llama-server goes on generating when its client has left (b11434 server-stream.cpp): it holds KV cache that
nobody knows of, and one client could end another's answer by naming it. Not sent on."""
_WITH_BODY = frozenset(("POST", "PUT", "PATCH"))
_SILENT = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")
"""Not to be added where the client said nothing of them."""


class EngineFault(Exception):
    """The engine gave no answer, or half of one; carries what a client is told."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


class EngineAway(EngineFault):
    """Nobody listens: the request was not sent."""


@dataclass(frozen=True)
class Request:
    """What is sent. ``target`` is path and query as the client wrote them."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    body: bytes


def without_hops(headers: Headers) -> list[tuple[bytes, bytes]]:
    """The headers that are meant for the other end (names may be in any case)."""
    named = {
        token.strip().lower() for name, value in headers if name.lower() == b"connection" for token in value.split(b",")
    }
    return [(name, value) for name, value in headers if name.lower() not in _HOP and name.lower() not in named]


def to_send(headers: Headers) -> tuple[tuple[str, str], ...]:
    """A client's headers for the engine. Raises UnicodeDecodeError for bytes that are no UTF-8."""
    kept = [(name, value) for name, value in without_hops(headers) if name.lower() not in (*_OURS, _OUTLIVES)]
    return tuple((name.decode("ascii"), value.decode("utf-8")) for name, value in kept)


class Answer:
    """An answer whose head has come. Close it, read to its end or not."""

    def __init__(self, response: aiohttp.ClientResponse, gap_s: float) -> None:
        self._response, self._gap_s = response, gap_s
        self.status = response.status
        self.kept = b""
        """The body as far as it was read by ``keep`` or ``read``."""
        self.ended = False
        """True once the body was read to its end."""
        raw = without_hops(response.raw_headers)
        chunked = any(name.lower() == b"transfer-encoding" for name, _ in response.raw_headers)
        self.headers = [(name, value) for name, value in raw if not (chunked and name.lower() == b"content-length")]

    def header(self, name: str) -> str:
        """A header's value, empty where there is none."""
        value: str = self._response.headers.get(name, "")
        return value

    @property
    def length(self) -> int | None:
        """The stated length of the body in bytes."""
        stated = next((value for name, value in self.headers if name.lower() == b"content-length"), b"")
        return int(stated) if stated.isdigit() else None

    @property
    def is_events(self) -> bool:
        """True for a stream of events that can be read (is not packed)."""
        packed = self.header("Content-Encoding") not in ("", "identity")
        return not packed and self.header("Content-Type").partition(";")[0].strip().lower() == "text/event-stream"

    async def keep(self, most_bytes: int) -> None:
        """Read so many bytes of the body, or a little more, into ``kept``; they are read again. Raises EngineFault."""
        async for piece in self._rest():
            self.kept += piece
            if len(self.kept) >= most_bytes:
                return

    async def read(self) -> bytes:
        """The whole body, also ``kept``. Raises EngineFault."""
        pieces = [self.kept, *[piece async for piece in self._rest()]]
        self.kept = b"".join(pieces)
        return self.kept

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body as it comes. Raises EngineFault where it breaks off, or nothing comes for too long."""
        if self.kept:
            yield self.kept
        async for piece in self._rest():
            yield piece

    async def _rest(self) -> AsyncIterator[bytes]:
        while not self.ended:
            try:
                async with asyncio.timeout(self._gap_s):
                    piece = await self._response.content.readany()
            except TimeoutError:
                why = f"the engine sent nothing more for {self._gap_s:g} s"
                raise EngineFault(Refusal(504, "engine-silent", why)) from None
            except (aiohttp.ClientError, aiohttp.http_exceptions.HttpProcessingError, OSError):
                why = "the engine's answer broke off before its end: it was stopped, killed or has crashed"
                raise EngineFault(Refusal(502, "engine-lost", why, retry_after_s=AGAIN_S)) from None
            if piece:
                yield piece
            else:
                self.ended = True


class _Line:
    """The socket of one connection to the engine, which is kept when aiohttp has closed its own end of it."""

    def __init__(self) -> None:
        self._sock: socket.socket | None = None

    def opened(self, sock: socket.socket) -> None:
        """A connection is being made; of several tries the last one counts."""
        self.close()
        self._sock = sock.dup()

    def close(self) -> None:
        """Close it, if there is one."""
        if self._sock is not None:
            self._sock.close()
            self._sock = None

    async def let_go(self, within_s: float) -> None:
        """Say that nobody listens any more, and wait for the engine's end of it."""
        sock, loop = self._sock, asyncio.get_running_loop()
        with suppress(OSError, TimeoutError):
            if sock is not None:
                sock.setblocking(False)
                sock.shutdown(socket.SHUT_WR)
                async with asyncio.timeout(within_s):
                    while await loop.sock_recv(sock, 65536):
                        pass


_LINE: ContextVar[_Line] = ContextVar("_LINE")


def _socket(address: tuple[Any, ...]) -> socket.socket:
    """As aiohttp makes its sockets (``aiohappyeyeballs``), for one that is remembered."""
    family, kind, protocol, _name, _where = address
    sock = socket.socket(family, kind, protocol)
    _LINE.get().opened(sock)
    return sock


AGAIN_S = 5
"""When a client may try again after the engine was away: about what a small model takes to load."""


class Upstream:
    """The engine at ``base`` (``http://host:port``). A context; for one event loop."""

    def __init__(self, base: str, limits: Limits, ca_file: str = "") -> None:
        self._base, self._limits = base, limits
        secure = base.startswith("https:")
        self._tls: ssl.SSLContext | bool = ssl.create_default_context(cafile=ca_file or None) if secure else True

    async def __aenter__(self) -> Upstream:
        limits = self._limits
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(force_close=True, limit=0, ssl=self._tls, socket_factory=_socket),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=limits.connect_s),
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=_SILENT,
            auto_decompress=False,
            trust_env=False,
            max_line_size=limits.head_bytes,
            max_field_size=limits.head_bytes,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()

    @asynccontextmanager
    async def send(self, request: Request) -> AsyncIterator[Answer]:
        """The answer to a request, from its head on. Leaving the context closes the connection, always; before the
        answer's end it takes until the engine has let go, at most ``let_go_s``.

        Raises EngineAway, EngineFault.
        """
        line, answer = _Line(), None
        _LINE.set(line)
        try:
            response = await self._head(request)
            try:
                answer = Answer(response, self._limits.gap_s)
                yield answer
            finally:
                response.close()
        finally:
            try:
                if answer is None or not answer.ended:
                    await line.let_go(self._limits.let_go_s)
            finally:
                line.close()

    async def _head(self, request: Request) -> aiohttp.ClientResponse:
        body = request.body if request.body or request.method in _WITH_BODY else None
        try:
            async with asyncio.timeout(self._limits.first_s):
                return await self._session.request(
                    request.method,
                    URL(self._base + request.target, encoded=True),
                    headers=request.headers,
                    data=body,
                    allow_redirects=False,
                )
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError):
            why = "nobody listens where the engine should: it is stopped, starting, or has crashed"
            raise EngineAway(Refusal(503, "engine-away", why, retry_after_s=AGAIN_S)) from None
        except TimeoutError:
            why = f"the engine did not begin to answer in {self._limits.first_s:g} s"
            raise EngineFault(Refusal(504, "engine-silent", why)) from None
        except (aiohttp.ClientConnectionError, OSError):
            why = "the engine closed the connection without an answer: it was stopped, killed or has crashed"
            raise EngineFault(Refusal(502, "engine-lost", why, retry_after_s=AGAIN_S)) from None
        except (aiohttp.ClientError, aiohttp.http_exceptions.HttpProcessingError, ValueError):
            why = "what the engine sent is no HTTP answer"
            raise EngineFault(Refusal(502, "engine-answer-invalid", why)) from None

    async def ask(
        self, method: str, path: str, body: bytes = b"", key: str = "", *, within_s: float
    ) -> tuple[int, bytes]:
        """A question of the guard's own: status and body. Raises OSError or TimeoutError where none comes."""
        headers = [("Content-Type", "application/json")] if body else []
        headers += [("Authorization", f"Bearer {key}")] if key else []
        async with asyncio.timeout(within_s):
            try:
                async with self.send(Request(method, path, tuple(headers), body)) as answer:
                    return answer.status, await answer.read()
            except EngineFault as fault:
                raise OSError(fault.refusal.message) from None
