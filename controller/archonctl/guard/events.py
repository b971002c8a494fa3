"""A stream of events (text/event-stream) in whole events, so that an end in the middle leaves no half of one."""

from __future__ import annotations

HELD_BYTES = 1 << 20
_ENDS = (b"\n\n", b"\n\r\n", b"\r\r")


class Events:
    """Holds back the beginning of an event until its rest has come. Engines send whole ones: it holds nothing."""

    def __init__(self) -> None:
        self._rest = b""
        self.torn = False
        """True once more was sent than whole events: an event longer than what is held."""

    def feed(self, piece: bytes) -> bytes:
        """What may be sent now."""
        data = self._rest + piece
        cut = max(at + len(end) if (at := data.rfind(end)) >= 0 else 0 for end in _ENDS)
        if len(data) - cut > HELD_BYTES:
            self.torn, self._rest = True, b""
            return data
        if cut and self.torn:
            self.torn = False
        self._rest = data[cut:]
        return data[:cut]

    def end(self) -> bytes:
        """What is left at a stream's good end."""
        rest, self._rest = self._rest, b""
        return rest


def as_event(body: bytes) -> bytes:
    """An error object as the last event of a stream, as OpenAI's clients understand it."""
    return b"data: " + body.replace(b"\n", b" ") + b"\n\n"
