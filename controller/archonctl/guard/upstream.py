"""The engine behind the guard, over one connection a request.

Connections are not kept for the next request, on purpose: what is left of an aborted answer can then never be read as
the start of another client's. The next one is opened while nobody waits for it, after a whole answer; it stays for
``SPARE_S``, since an idle one holds one of the few threads that llama-server answers with (cpp-httplib has a thread a
connection).

A connection that is left in the middle of an answer is closed in one direction first, and the engine's closing is
waited for: until then the engine works on, and what it holds for that request must not be given to another.
llama-server looks once a second whether its client is still there, and queues the cancelling before it closes (b11434
server-queue.cpp).
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

from archonctl.guard.limits import Limits
from archonctl.guard.values import Refusal
from archonctl.guard.wire import NotHttp, Torn, Wire

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
_NOT_SENT = _OURS | {_OUTLIVES}
_WITH_BODY = frozenset(("POST", "PUT", "PATCH"))


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
    headers: Headers
    body: bytes


def without_hops(headers: Headers) -> list[tuple[bytes, bytes]]:
    """The headers that are meant for the other end (names may be in any case)."""
    named = {
        token.strip().lower() for name, value in headers if name.lower() == b"connection" for token in value.split(b",")
    }
    not_meant = _HOP | named
    return [(name, value) for name, value in headers if name.lower() not in not_meant]


def to_send(headers: Headers) -> Headers:
    """A client's headers for the engine. Raises UnicodeDecodeError for bytes that are no UTF-8."""
    kept = [(name, value) for name, value in without_hops(headers) if name.lower() not in _NOT_SENT]
    for _, value in kept:
        value.decode("utf-8")
    return kept


AGAIN_S = 5
"""When a client may try again after the engine was away: about what a small model takes to load."""

LOOK_S = 1.0
"""Between two looks at whether the engine still listens, while an answer is waited for."""

SPARE_S = 1.0
"""How long a connection waits for its request: less than an engine waits on one (llama-server: 5 s)."""


class Answer:
    """An answer whose head has come."""

    def __init__(self, wire: Wire, gap_s: float) -> None:
        self._wire, self._gap_s = wire, gap_s
        self.status = wire.status
        self.kept = b""
        """The body as far as it was read by ``keep`` or ``read``."""
        self.headers = without_hops(wire.headers)

    def header(self, name: bytes) -> str:
        """A header's value by its name in small letters, empty where there is none."""
        return next((value for key, value in self.headers if key.lower() == name), b"").decode("latin-1")

    @property
    def length(self) -> int | None:
        """The stated length of the body in bytes."""
        stated = self.header(b"content-length")
        return int(stated) if stated else None

    @property
    def is_events(self) -> bool:
        """True for a stream of events that can be read (is not packed)."""
        packed = self.header(b"content-encoding") not in ("", "identity")
        return not packed and self.header(b"content-type").partition(";")[0].strip().lower() == "text/event-stream"

    async def keep(self, most_bytes: int) -> None:
        """Read so many bytes of the body, or a little more, into ``kept``; they are read again. Raises EngineFault."""
        while len(self.kept) < most_bytes and (piece := await self._piece()):
            self.kept += piece

    async def read(self) -> bytes:
        """The whole body, also ``kept``. Raises EngineFault."""
        pieces = [self.kept]
        while piece := await self._piece():
            pieces.append(piece)
        self.kept = b"".join(pieces)
        return self.kept

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body as it comes. Raises EngineFault where it breaks off, or nothing comes for too long."""
        if self.kept:
            yield self.kept
        while piece := await self._piece():
            yield piece

    async def _piece(self) -> bytes:
        try:
            return await self._wire.piece(self._gap_s)
        except TimeoutError:
            why = f"the engine sent nothing more for {self._gap_s:g} s"
            raise EngineFault(Refusal(504, "engine-silent", why)) from None
        except (Torn, NotHttp):
            why = "the engine's answer broke off before its end: it was stopped, killed or has crashed"
            raise EngineFault(Refusal(502, "engine-lost", why, retry_after_s=AGAIN_S)) from None


class Upstream:
    """The engine at ``base`` (``http://host:port``, perhaps with a path). A context; for one event loop.

    ``ends_unanswered``: once it listens no more, the engine answers nobody who asked it before, and does not end
    before they have left. Two looks in which nobody listens end those requests then.
    """

    def __init__(self, base: str, limits: Limits, ca_file: str = "", *, ends_unanswered: bool = False) -> None:
        self._limits, parts = limits, urlsplit(base)
        secure = parts.scheme == "https"
        self._tls = ssl.create_default_context(cafile=ca_file or None) if secure else None
        self._host, self._port = parts.hostname or "", parts.port or (443 if secure else 80)
        self._prefix, self._named = parts.path.rstrip("/").encode(), parts.netloc.rpartition("@")[2].encode()
        self._spare: Wire | None = None
        self._spare_ends: asyncio.TimerHandle | None = None
        self._opening: asyncio.Task[None] | None = None
        self._ended = False
        self._looks, self._asked = ends_unanswered, set[Wire]()
        self._looking: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Upstream:
        return self

    async def __aexit__(self, *_error: object) -> None:
        self._ended = True
        tasks = [task for task in (self._opening, self._looking) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._drop_spare()

    @asynccontextmanager
    async def send(self, request: Request) -> AsyncIterator[Answer]:
        """The answer to a request, from its head on. Leaving the context closes the connection, always; before the
        answer's end it takes until the engine has let go, at most ``let_go_s``.

        Raises EngineAway, EngineFault.
        """
        wire = self._take_spare() or await self._connected()
        self._asked.add(wire)
        if self._looks and self._looking is None and not self._ended:
            self._looking = asyncio.create_task(self._look())
        try:
            wire.send(self._bytes(request), without_body=request.method == "HEAD")
            await self._head(wire)
            yield Answer(wire, self._limits.gap_s)
        finally:
            self._asked.discard(wire)
            try:
                if not wire.whole:
                    await wire.let_go(self._limits.let_go_s)
            finally:
                wire.close()
                if wire.whole and self._spare is None and self._opening is None and not self._ended:
                    self._opening = asyncio.create_task(self._prepare())

    async def _prepare(self) -> None:
        """Open the connection of the next request."""
        try:
            self._spare = await self._connected()
            self._spare_ends = asyncio.get_running_loop().call_later(SPARE_S, self._drop_spare)
        except EngineFault:
            pass  # the next request will find out itself
        finally:
            self._opening = None

    async def _look(self) -> None:
        """Give up what is asked of an engine that has stopped listening."""
        refused = 0
        try:
            while self._asked:
                await asyncio.sleep(LOOK_S)
                refused = refused + 1 if await self._is_refused() else 0
                for wire in self._asked if refused > 1 else ():
                    wire.give_up()
        finally:
            self._looking = None

    async def _is_refused(self) -> bool:
        """True if nobody listens; a name with several addresses never tells."""
        try:
            async with asyncio.timeout(self._limits.connect_s):
                transport, _ = await asyncio.get_running_loop().create_connection(
                    asyncio.Protocol, self._host, self._port
                )
        except (OSError, UnicodeError) as error:
            return isinstance(error, ConnectionRefusedError)
        transport.abort()
        return False

    def _take_spare(self) -> Wire | None:
        """The connection that is open already, if it still is."""
        wire, self._spare = self._spare, None
        if self._spare_ends is not None:
            self._spare_ends.cancel()
        if wire is None or wire.is_fresh:
            return wire
        wire.close()
        return None

    def _drop_spare(self) -> None:
        if (wire := self._take_spare()) is not None:
            wire.close()

    async def _connected(self) -> Wire:
        loop, limits = asyncio.get_running_loop(), self._limits
        try:
            async with asyncio.timeout(limits.connect_s):
                transport, wire = await loop.create_connection(
                    lambda: Wire(limits.head_bytes), self._host, self._port, ssl=self._tls
                )
        except ssl.SSLError as error:
            why = f"no TLS connection to the engine: {getattr(error, 'verify_message', '') or error.reason or error}"
            refusal = Refusal(503, "engine-away", why, retry_after_s=AGAIN_S)
            # a certificate that is not the engine's is none after a while either: nobody waits for it
            raise (EngineFault if isinstance(error, ssl.CertificateError) else EngineAway)(refusal) from None
        except (OSError, UnicodeError):  # TimeoutError is an OSError; no name of a host gives the other
            why = "nobody listens where the engine should: it is stopped, starting, or has crashed"
            raise EngineAway(Refusal(503, "engine-away", why, retry_after_s=AGAIN_S)) from None
        if self._tls is not None:
            # Both event loops drop what TLS has not read yet at the connection's end: while a wire is paused, leave it
            # in the socket, where that end stands behind it.
            transport.set_read_buffer_limits(high=1, low=0)  # type: ignore[attr-defined]
        return wire

    def _bytes(self, request: Request) -> bytes:
        lines = [b"%s %s%s HTTP/1.1\r\nHost: %s" % (
            request.method.encode(), self._prefix, request.target.encode(), self._named
        )]  # fmt: skip
        lines += [b"%s: %s" % header for header in request.headers]
        if request.body or request.method in _WITH_BODY:
            lines.append(b"Content-Length: %d" % len(request.body))
        return b"\r\n".join([*lines, b"Connection: close\r\n\r\n"]) + request.body

    async def _head(self, wire: Wire) -> None:
        try:
            await wire.head(self._limits.first_s)
        except TimeoutError:
            why = f"the engine did not begin to answer in {self._limits.first_s:g} s"
            raise EngineFault(Refusal(504, "engine-silent", why)) from None
        except Torn:
            why = "the engine closed the connection without an answer: it was stopped, killed or has crashed"
            raise EngineFault(Refusal(502, "engine-lost", why, retry_after_s=AGAIN_S)) from None
        except NotHttp:
            why = "what the engine sent is no HTTP answer"
            raise EngineFault(Refusal(502, "engine-answer-invalid", why)) from None

    async def ask(
        self, method: str, path: str, body: bytes = b"", key: str = "", *, within_s: float
    ) -> tuple[int, bytes]:
        """A question of the guard's own: status and body. Raises OSError or TimeoutError where none comes."""
        headers = [(b"Content-Type", b"application/json")] if body else []
        headers += [(b"Authorization", b"Bearer " + key.encode())] if key else []
        async with asyncio.timeout(within_s):
            try:
                async with self.send(Request(method, path, headers, body)) as answer:
                    return answer.status, await answer.read()
            except EngineFault as fault:
                raise OSError(fault.refusal.message) from None
