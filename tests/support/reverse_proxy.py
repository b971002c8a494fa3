"""A reverse proxy that does to answers what real ones do: buffers them, packs them, passes them on under a prefix.

HTTP/1.0 and threads; one connection upstream a request. Nothing of it outlives the ``with`` block.
"""

from __future__ import annotations

import http.client
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_WBITS = {"gzip": 31, "deflate": 15, "raw deflate": -15}


@dataclass
class Behaviour:
    """What the proxy does. ``piece`` bytes of an answer are passed on at a time: 0 as they come, -1 the whole."""

    piece: int = 0
    coding: str = ""
    """"gzip", "deflate", "raw deflate": packed so. Anything else is only said, and the body left as it is."""
    prefix: str = ""
    head: tuple[tuple[str, str], ...] = ()
    """More headers of every answer. One that the answer has already comes twice."""
    kind: str = ""
    """Another content type for every answer that has one."""
    stream_kind: str = ""
    """Another content type for event streams alone."""
    rewrite: Callable[[bytes], bytes] = bytes
    """What becomes of a piece of an event stream."""
    before: bytes = b""
    """Sent before the head: interim answers."""
    refuse: list[tuple[int, str]] = field(default_factory=list)
    """Refuse as many completions, the first ones, with these statuses and ``Retry-After``."""
    refuse_above: int = 0
    """Of the completions, only those with a longer body are refused."""


class _Handler(BaseHTTPRequestHandler):
    behaviour: Behaviour
    upstream: str
    seen: list[str]
    streams = False

    def do_GET(self) -> None:
        self._pass(b"")

    def do_POST(self) -> None:
        self._pass(self.rfile.read(int(self.headers.get("content-length", "0"))))

    def log_message(self, *args: Any) -> None:
        pass

    def _pass(self, body: bytes) -> None:
        self.seen.append(self.path)
        does = self.behaviour
        if "completions" in self.path and does.refuse and len(body) > does.refuse_above:
            status, after = does.refuse.pop(0)
            self._refuse(status, after)
            return
        if not self.path.startswith(does.prefix):
            self._refuse(404, "")
            return
        upstream = http.client.HTTPConnection(self.upstream, timeout=60)
        try:
            headers = {k: v for k, v in self.headers.items() if k.lower() not in ("host", "connection")}
            upstream.request(self.command, self.path.removeprefix(does.prefix), body or None, headers)
            with suppress(OSError):
                self._answer(upstream.getresponse())
        except http.client.HTTPException:
            self.close_connection = True
        finally:
            upstream.close()

    def _refuse(self, status: int, after: str) -> None:
        with suppress(OSError):
            self.send_response(status)
            if after:
                self.send_header("Retry-After", after)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<html>busy</html>")

    def _answer(self, answer: http.client.HTTPResponse) -> None:
        does = self.behaviour
        self.wfile.write(does.before)
        self.send_response(answer.status)
        kind = answer.headers.get("content-type", "text/plain")
        self.streams = kind == "text/event-stream"
        self.send_header("Content-Type", does.kind or (does.stream_kind if self.streams else "") or kind)
        if does.coding:
            self.send_header("Content-Encoding", does.coding.removeprefix("raw "))
        for name, value in does.head:
            self.send_header(name, value)
        self.end_headers()
        packer = zlib.compressobj(wbits=_WBITS[does.coding]) if does.coding in _WBITS else None
        for piece in map(does.rewrite if self.streams else bytes, self._pieces(answer)):
            self.wfile.write(packer.compress(piece) + packer.flush(zlib.Z_SYNC_FLUSH) if packer else piece)
            self.wfile.flush()
        if packer:
            self.wfile.write(packer.flush())

    def _pieces(self, answer: http.client.HTTPResponse) -> Iterator[bytes]:
        size, kept = self.behaviour.piece, b""
        while block := answer.read1(65536):
            kept += block
            while kept and (size == 0 or 0 < size <= len(kept)):
                cut = size or len(kept)
                yield kept[:cut]
                kept = kept[cut:]
        if kept:
            yield kept


@dataclass
class Proxy:
    """The running proxy: ``port``, and the paths that were asked of it."""

    port: int
    seen: list[str]


@contextmanager
def reverse_proxy(upstream: str, behaviour: Behaviour) -> Iterator[Proxy]:
    """A proxy before ``upstream`` (host:port) for the length of a ``with`` block."""
    seen: list[str] = []
    bound = type("Bound", (_Handler,), {"behaviour": behaviour, "upstream": upstream, "seen": seen})

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 128

        def handle_error(self, request: Any, client_address: Any) -> None:
            pass

    server = Server(("127.0.0.1", 0), bound)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield Proxy(server.server_address[1], seen)
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
