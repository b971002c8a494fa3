"""The report over HTTP: an index, and a page an endpoint, made anew when somebody asks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import TYPE_CHECKING

from archonctl.errors import ArchonError

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

FRESH_S = 5.0
"""A page is made at most once in this time, whoever asks for it."""
_KEPT = 64
_LOCAL = ("localhost", "127.0.0.1", "::1")
_HEADERS = [
    ("Cache-Control", "no-store"),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Content-Security-Policy", "frame-ancestors 'none'"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
]


class ReportApp:
    """``make`` gives the page of a path's name ("" is the index), None where there is none.

    On a loopback address only a request that names it is answered: a page of elsewhere whose name was made to point
    here (DNS rebinding) must not read log lines. Each answer is whole; nothing is written anywhere.
    """

    def __init__(self, make: Callable[[str], str | None], *, local: bool) -> None:
        self._make, self._local = make, local
        self._lock = threading.Lock()
        self._made: dict[str, tuple[float, bytes | None]] = {}

    def __call__(self, environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        """See PEP 3333."""
        method = environ.get("REQUEST_METHOD")
        if method not in ("GET", "HEAD"):
            return _plain(start, HTTPStatus.METHOD_NOT_ALLOWED, ("Allow", "GET, HEAD"))
        if self._local and _host(str(environ.get("HTTP_HOST", ""))) not in _LOCAL:
            return _plain(start, HTTPStatus.MISDIRECTED_REQUEST)
        try:
            body = self._page(str(environ.get("PATH_INFO", "/")).lstrip("/"))
        except ArchonError:  # an endpoint that was there when the server began is gone
            return _plain(start, HTTPStatus.SERVICE_UNAVAILABLE)
        if body is None:
            return _plain(start, HTTPStatus.NOT_FOUND)
        start("200 OK", [("Content-Type", "text/html; charset=utf-8"), ("Content-Length", str(len(body))), *_HEADERS])
        return [b"" if method == "HEAD" else body]

    def _page(self, name: str) -> bytes | None:
        with self._lock:
            made = self._made.get(name)
            if made is None or time.monotonic() - made[0] > FRESH_S:
                text = self._make(name)
                made = (time.monotonic(), text.encode() if text is not None else None)
                if len(self._made) >= _KEPT:
                    self._made.clear()
                self._made[name] = made
            return made[1]


def _host(header: str) -> str:
    """The name of a Host header, without its port."""
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.rpartition(":")[0] or header


def _plain(start: StartResponse, status: HTTPStatus, *more: tuple[str, str]) -> list[bytes]:
    body = f"{status.phrase}\n".encode()
    start(
        f"{status.value} {status.phrase}", [("Content-Type", "text/plain"), ("Content-Length", str(len(body))), *more]
    )
    return [body]
