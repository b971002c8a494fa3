"""The client's side of one answer: what was sent of it, and how it can still end well."""

from __future__ import annotations

import time
from collections.abc import Sequence

from archonctl.guard.answers import error_body, error_headers
from archonctl.guard.events import as_event
from archonctl.guard.limits import Receive, Send, discard
from archonctl.guard.values import Refusal

Headers = Sequence[tuple[bytes, bytes]]

TAIL_BYTES = 2048
"""Enough for the figures that an engine ends its answer with."""


class Reply:
    """One answer on its way. ``events`` is true while whole events have been sent, so that another may follow."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.began = time.monotonic()
        self.first_s: float | None = None
        """Seconds from the request's head to the first byte of the answer."""
        self.status = 0
        self.sent_bytes = 0
        self.tail = b""
        """The last of what was sent of the body."""
        self.events = False
        self.ended = False

    async def start(self, status: int, headers: Headers) -> None:
        """Send the head."""
        self.status, self.first_s = status, time.monotonic() - self.began
        await self._send({"type": "http.response.start", "status": status, "headers": list(headers)})

    async def piece(self, data: bytes) -> None:
        """Send more of the body."""
        self._count(data)
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    def _count(self, data: bytes) -> None:
        self.sent_bytes += len(data)
        self.tail = (self.tail + data[-TAIL_BYTES:])[-TAIL_BYTES:]

    async def end(self, data: bytes = b"") -> None:
        """Send the last of the body."""
        self._count(data)
        self.ended = True
        await self._send({"type": "http.response.body", "body": data, "more_body": False})

    async def whole(self, status: int, headers: Headers, body: bytes) -> None:
        """Send head and body."""
        await self.start(status, headers)
        await self.end(body)

    async def refuse(self, refusal: Refusal, unread: Receive | None = None) -> bool:
        """Say why there is no answer, or no more of it; False if that cannot be said any more.

        ``unread``: the request's body was not read to its end, so the connection cannot be used again.
        """
        body = error_body(refusal)
        if self.ended:
            return True
        if self.status:
            if self.events:
                await self.end(as_event(body))
            return self.events
        headers = [(name.encode(), value.encode()) for name, value in error_headers(refusal)]
        headers.append((b"content-length", str(len(body)).encode()))
        if refusal.status == 401:
            headers.append((b"www-authenticate", b"Bearer"))
        if unread is None:
            await self.whole(refusal.status, headers, body)
            return True
        await self.start(refusal.status, [*headers, (b"connection", b"close")])
        await self.piece(body)
        await discard(unread)
        await self.end()
        return True
