"""Server-sent events, incrementally and bounded (the "event stream" part of the HTML standard)."""

from __future__ import annotations

import codecs

from archonctl.probe.faults import Fault

MAX_EVENT_BYTES = 1024 * 1024


class SseParser:
    """Bytes in, payloads of whole events out. ``error:`` fields (old llama.cpp) count as data."""

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max = max_event_bytes
        self._rest = b""
        self._begun = False
        self._data: list[bytes] = []
        self._size = 0

    def feed(self, block: bytes) -> list[bytes]:
        """Payloads completed by ``block``. Raises Fault ``body-too-large`` for one event without end."""
        text = self._rest + block
        if not self._begun and len(text) >= len(codecs.BOM_UTF8):
            text, self._begun = text.removeprefix(codecs.BOM_UTF8), True
        held_back = text.endswith(b"\r")  # the other half of a CR LF may still be under way
        lines = (text[:-1] if held_back else text).replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        self._rest = lines.pop() + (b"\r" if held_back else b"")
        payloads: list[bytes] = []
        for line in lines:
            payloads += self._line(line)
        if len(self._rest) + self._size > self._max:
            raise Fault("body-too-large", f"one event of the stream passes {self._max:,} bytes without an end")
        return payloads

    def _line(self, line: bytes) -> list[bytes]:
        if not line:
            done, self._data, self._size = b"\n".join(self._data), [], 0
            return [done] if done.strip() else []
        name, _, value = line.partition(b":")
        if name in (b"data", b"error"):
            self._data.append(value.removeprefix(b" "))
            self._size += len(value)
        return []

    def end(self) -> list[bytes]:
        """What is left when the stream ends without the last blank line (some servers leave it out)."""
        return self.feed(b"\n\n")
