"""HTTP/1.1 towards clients: uvicorn's h11 protocol, with bounds on what it waits for, and typed refusals."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, ClassVar, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from archonctl.guard.answers import error_body, error_headers
from archonctl.guard.gathered import Gathered
from archonctl.guard.limits import Limits
from archonctl.guard.values import Refusal


class GuardProtocol(H11Protocol):
    """One connection. A subclass carries the limits (``bound``), since uvicorn is given a class."""

    limits: ClassVar[Limits] = Limits()

    @classmethod
    def bound(cls, limits: Limits, unread: Callable[[str, Refusal], None]) -> type[GuardProtocol]:
        """This protocol with these limits."""
        return type("BoundProtocol", (cls,), {"limits": limits, "unread": lambda _self, *told: unread(*told)})

    def unread(self, peer: str, refusal: Refusal) -> None:
        """Hears of each refusal that the application does not: where the request came from, and why."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take it, or say that there are too many."""
        full = len(self.connections) >= self.limits.connections
        self._gathered = Gathered(transport, self.loop)
        super().connection_made(cast("asyncio.Transport", self._gathered))
        if full:
            why = f"{self.limits.connections:,} connections are open already"
            self._refuse(Refusal(503, "guard-full", why, retry_after_s=5))
        else:
            self._arm("head", self.limits.head_s, self._head_late)

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        for name in tuple(self._timers):
            self._disarm(name)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """More of a request. Its head must be there in time, whatever it trickles."""
        if self._refused:
            return
        if "head" not in self._timers and self.conn.their_state is h11.IDLE:
            self._arm("head", self.limits.head_s, self._head_late)
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._disarm("head")

    def on_response_complete(self) -> None:
        """The answer is written: nothing more comes that it could go out with."""
        self._gathered.flush()
        super().on_response_complete()

    def pause_writing(self) -> None:
        """The client does not read: for a time."""
        super().pause_writing()
        self._arm("write", self.limits.write_s, self.transport.abort)

    def resume_writing(self) -> None:
        """It reads again."""
        self._disarm("write")
        super().resume_writing()

    def send_400_response(self, _msg: str) -> None:
        """What is no HTTP; called while h11's complaint is being handled."""
        complaint = sys.exc_info()[1]
        status = getattr(complaint, "error_status_hint", 400)
        if status == 431:
            why = f"the headers have more than {self.limits.head_bytes:,} bytes"
            self._refuse(Refusal(431, "request-head-too-large", why))
        else:
            # h11's own words quote the request, which may be a key
            self._refuse(Refusal(status, "request-malformed", "this is no HTTP/1.1 request"))

    def _head_late(self) -> None:
        why = f"the head of the request did not arrive in {self.limits.head_s:g} s"
        if self.conn.trailing_data[0]:
            self._refuse(Refusal(408, "request-too-slow", why))
        else:
            self.transport.close()

    def _refuse(self, refusal: Refusal) -> None:
        """Answer without the application, if nothing of an answer was sent yet, and close."""
        self._refused = True
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self.unread(str((self.client or ("unknown",))[0]), refusal)
            body = error_body(refusal)
            headers = [*error_headers(refusal), ("Content-Length", str(len(body))), ("Connection", "close")]
            with suppress(h11.LocalProtocolError):
                head = h11.Response(status_code=refusal.status, headers=headers, reason=b"")
                for event in (head, h11.Data(data=body), h11.EndOfMessage()):
                    self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _arm(self, name: str, seconds: float, then: Any) -> None:
        self._disarm(name)
        self._timers[name] = self.loop.call_later(seconds, then)

    def _disarm(self, name: str) -> None:
        if timer := self._timers.pop(name, None):
            timer.cancel()
