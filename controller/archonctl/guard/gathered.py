"""What is written to a client within one turn of the event loop goes out in one piece: head and body cost one call."""

from __future__ import annotations

import asyncio
from typing import Any

MOST_BYTES = 64 << 10


class Gathered:
    """A transport that gathers what is written until the loop's next turn, or so many bytes of it."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._held = bytearray()

    def __getattr__(self, name: str) -> Any:
        """Everything else is the transport's own."""
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Write it soon, in its turn."""
        if data and not self._held:
            self._loop.call_soon(self.flush)
        self._held += data
        if len(self._held) >= MOST_BYTES:
            self.flush()

    def close(self) -> None:
        """Close it once everything is sent."""
        self.flush()
        self._transport.close()

    def flush(self) -> None:
        """Write it now; nothing to a connection that is gone, where uvloop raises."""
        held, self._held = bytes(self._held), bytearray()
        if held and not self._transport.is_closing():
            self._transport.write(held)
