"""A simulator of an engine for tests of what stands in front of one: tiny, deterministic, and no model anywhere.

It answers what the request asks for, so that everybody can tell their own answer. The body's field ``simulate`` says
how:

    pieces, size    a stream of so many events of so many characters (the prompt, repeated and numbered)
    raw             these very bytes (latin-1) instead of an answer, then the connection is closed
    die_after       close the connection after so many events, or with 0 before the head
    wait_s          before the answer
    gap_s           between two events
    refuse          [times, status, body]: the first so many requests with this prompt get that
    read            false: answer without having read the body

As a program (``python echo_engine.py PORT``) or within a test (``EchoEngine``, whose ``seen`` holds each request).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

_KIND = {"id": "echo", "created": 1, "model": "echo"}


@dataclass
class Seen:
    """One request as it arrived, byte for byte."""

    head: bytes
    body: bytes
    ended: str = ""
    """"answered", or "client-gone"."""

    @property
    def line(self) -> str:
        return self.head.split(b"\r\n", 1)[0].decode("latin-1")

    def header(self, name: str) -> str | None:
        for line in self.head.split(b"\r\n")[1:]:
            key, _, value = line.partition(b":")
            if key.decode("latin-1").lower() == name.lower():
                return value.strip().decode("latin-1")
        return None


def expected_text(prompt: str, pieces: int, size: int) -> str:
    """What the events of a stream say together."""
    return "".join(_piece(prompt, number, size) for number in range(pieces))


def _piece(prompt: str, number: int, size: int) -> str:
    unit = f"{prompt}#{number} "
    return (unit * (size // len(unit) + 1))[:size]


@dataclass
class EchoEngine:
    """The server's state."""

    keep: bool = True
    """Remember requests."""
    seen: list[Seen] = field(default_factory=list)
    open_connections: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    notices_s: float = 0.0
    """How long it works on for a client that has gone."""
    slots: list[dict[str, Any]] = field(default_factory=list)
    """What /slots answers."""

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open_connections += 1
        try:
            while await self._one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self.open_connections -= 1
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return False
        seen = Seen(head, b"")
        if (stated := seen.header("content-length")) is not None:
            seen.body = await reader.readexactly(int(stated))
        if self.keep:
            self.seen.append(seen)
        work = asyncio.ensure_future(self._answer(seen, writer))
        gone = asyncio.ensure_future(reader.read(1))
        await asyncio.wait((work, gone), return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            await asyncio.sleep(self.notices_s)
            seen.ended = "client-gone"
            return False
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
        seen.ended = "client-gone"
        work.result()
        await writer.drain()
        seen.ended = "answered"
        return False

    async def _answer(self, seen: Seen, writer: asyncio.StreamWriter) -> None:
        method, target, _ = seen.line.split(" ", 2)
        path = target.partition("?")[0]
        if path == "/slots":
            return _send(writer, 200, self.slots)
        if path == "/props":
            return _send(writer, 200, {"default_generation_settings": {"n_ctx": 4096}, "total_slots": 64})
        if path.startswith("/slots/"):
            return _send(writer, 200, {"id_slot": int(path.split("/")[2]), "n_erased": 1})
        try:
            body = json.loads(seen.body) if seen.body else {}
        except ValueError:
            return _send(writer, 400, {"error": {"message": "no JSON", "type": "invalid_request_error", "code": 400}})
        if path.endswith("/input_tokens"):
            return _send(writer, 200, {"input_tokens": 10 + len(json.dumps(body["messages"])) // 4})
        does = body.get("simulate", {})
        prompt = str(body.get("prompt") or (body.get("messages") or [{}])[-1].get("content") or "")
        await asyncio.sleep(does.get("wait_s", 0))
        if "refuse" in does:
            times, status, answer = does["refuse"]
            if self.refused.get(prompt, 0) < times:
                self.refused[prompt] = self.refused.get(prompt, 0) + 1
                return _send(writer, status, answer)
        if "raw" in does:
            writer.write(does["raw"].encode("latin-1"))
            return None
        if does.get("die_after") == 0:
            return None
        if body.get("stream"):
            return await self._stream(prompt, does, writer)
        if method == "HEAD":
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1234\r\nX-Engine: echo\r\n\r\n")
            return None
        text = expected_text(prompt, does.get("pieces", 1), does.get("size", 40)) if prompt else ""
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "text": text, "finish_reason": "stop"}
        _send(writer, 200, {**_KIND, "object": "chat.completion", "choices": [choice]})
        return None

    async def _stream(self, prompt: str, does: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        for number in range(does.get("pieces", 1)):
            if number == does.get("die_after"):
                return
            delta = {"content": _piece(prompt, number, does.get("size", 40))}
            choice = {"index": 0, "delta": delta, "finish_reason": None}
            event = {**_KIND, "object": "chat.completion.chunk", "choices": [choice]}
            _chunk(writer, b"data: " + json.dumps(event).encode() + b"\n\n")
            await writer.drain()
            await asyncio.sleep(does.get("gap_s", 0))  # also for a look at whether the client is still there
        _chunk(writer, b"data: [DONE]\n\n")
        writer.write(b"0\r\n\r\n")


def _chunk(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(b"%x\r\n%s\r\n" % (len(data), data))


def _send(writer: asyncio.StreamWriter, status: int, value: object) -> None:
    body = value.encode("latin-1") if isinstance(value, str) else json.dumps(value).encode()
    head = f"HTTP/1.1 {status} Simulated\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)


@contextlib.contextmanager
def echo_engine(port: int = 0) -> Iterator[tuple[EchoEngine, int]]:
    """The engine and its port, from a thread of its own."""
    engine, loop = EchoEngine(), asyncio.new_event_loop()
    server = loop.run_until_complete(asyncio.start_server(engine.handle, "127.0.0.1", port, limit=64 << 20))
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def end() -> None:
        # a connection that was accepted, and finds its server closed, is never closed itself (CPython 3.11): no more
        # are accepted first, and those that were get their tasks
        loop.remove_reader(server.sockets[0].fileno())
        await asyncio.sleep(0.02)
        server.close()
        rest = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)

    try:
        yield engine, server.sockets[0].getsockname()[1]
    finally:
        asyncio.run_coroutine_threadsafe(end(), loop).result(60)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(60)
        loop.close()


async def _main(port: int) -> None:
    engine = EchoEngine(keep=False)
    server = await asyncio.start_server(engine.handle, "127.0.0.1", port, limit=64 << 20, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_main(int(sys.argv[1]) if len(sys.argv) > 1 else 0))
