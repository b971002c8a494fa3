"""A small HTTP/1.1 server on asyncio: bounded requests, keep-alive, chunked streams. Nothing of radiance in it."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

HEAD_BYTES = 64 * 1024
REASONS = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 405: "Method Not Allowed"}
REASONS |= {413: "Content Too Large", 429: "Too Many Requests", 500: "Internal Server Error", 501: "Not Implemented"}
REASONS |= {503: "Service Unavailable"}


@dataclass(frozen=True)
class Request:
    """``headers`` by lower-case name."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True)
class Response:
    """``body`` whole, or ``stream`` piece by piece; ``on_close`` is called once, however it ends."""

    status: int = 200
    body: bytes = b""
    content_type: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)
    stream: AsyncIterator[bytes] | None = None
    on_close: Callable[[], None] | None = None

    @classmethod
    def of(cls, value: object, status: int = 200, **headers: str) -> Response:
        """JSON."""
        return cls(status, json.dumps(value).encode(), headers={k.replace("_", "-"): v for k, v in headers.items()})


Handler = Callable[[Request], Awaitable[Response]]


class Web:
    """Serves ``handler``; ``server`` goes into the Server header."""

    def __init__(self, handler: Handler, server: str, body_bytes: int) -> None:
        self._handler, self._server, self._body_bytes = handler, server, body_bytes

    async def connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection to its end."""
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            while (request := await self._read(reader, writer)) is not None:
                await self._answer(request, reader, writer)
                if request.headers.get("connection", "").lower() == "close":
                    break
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    async def _read(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Request | None:
        head = await reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        words = first.split(" ")
        if len(words) != 3:
            return None
        pairs = (line.partition(":") for line in lines if ":" in line)
        headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        length = headers.get("content-length", "0")
        if not length.isascii() or not length.isdigit() or "transfer-encoding" in headers:
            return None
        if int(length) > self._body_bytes:
            await self._write(writer, Response.of({"error": {"message": "the body is too large"}}, 413))
            return None
        return Request(words[0], words[1].partition("?")[0], headers, await reader.readexactly(int(length)))

    async def _answer(self, request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer, and give the work up when the client leaves first."""
        work = asyncio.ensure_future(self._handler(request))
        gone = asyncio.ensure_future(_closed(reader))
        await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            raise ConnectionResetError
        response = work.result()
        try:
            await self._write(writer, response)
        finally:
            gone.cancel()
            if response.on_close is not None:
                response.on_close()

    async def _write(self, writer: asyncio.StreamWriter, response: Response) -> None:
        streamed = response.stream is not None
        headers = {"Server": self._server, "Content-Type": response.content_type, **response.headers}
        headers |= {"Transfer-Encoding": "chunked"} if streamed else {"Content-Length": str(len(response.body))}
        head = f"HTTP/1.1 {response.status} {REASONS.get(response.status, 'Unknown')}\r\n"
        head += "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        writer.write(head.encode("latin-1") + b"\r\n" + response.body)
        if response.stream is not None:
            async for piece in response.stream:
                writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                await writer.drain()
            writer.write(b"0\r\n\r\n")
        await writer.drain()


async def _closed(reader: asyncio.StreamReader) -> None:
    """Until the client has closed its side; a pipelined request is left alone."""
    while not reader.at_eof():
        await asyncio.sleep(0.05)
