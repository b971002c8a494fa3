"""An answer whose head was read: what it says of itself, and its body, unpacked and bounded."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import aclosing
from typing import TYPE_CHECKING

from archonctl.probe.coding import KNOWN, Unpacker
from archonctl.probe.faults import Fault, unseen

if TYPE_CHECKING:
    import httpx


def listed(headers: httpx.Headers, name: str) -> list[str]:
    """The values of a header that may have come in several lines, or twice in one: in lower case, without
    parameters."""
    lines = headers.get_list(name, split_commas=True)
    return [word for line in lines if (word := line.partition(";")[0].strip().lower())]


def is_json(content_type: str) -> bool:
    """True for JSON by its name (RFC 8259, RFC 6839)."""
    return content_type in ("application/json", "text/json") or content_type.endswith("+json")


class Stream:
    """An answer whose head was read. ``excerpt`` makes text fit to be shown; ``note`` keeps a whole body as a proof.

    Raises Fault ``redirected``, ``answer-compressed``.
    """

    def __init__(
        self, response: httpx.Response, what: str, excerpt: Callable[..., str], note: Callable[[bytes], None]
    ) -> None:
        self.status = response.status_code
        self.content_type = next(iter(listed(response.headers, "content-type")), "")
        self.retry_after: str = response.headers.get("retry-after", "")
        self._response = response
        self._what = what
        self._excerpt = excerpt
        self._note = note
        self._refuse_redirect()
        self._packed = self._coding()

    def _refuse_redirect(self) -> None:
        if not 300 <= self.status < 400:
            return
        target = self._excerpt(self._response.headers.get("location", "nowhere"))
        raise Fault(
            "redirected",
            f"{self._what} answered HTTP {self.status} to {target}: that is not this engine, and is not followed",
            expected="HTTP 200",
            actual=f"HTTP {self.status}",
            evidence=f"location: {target}",
        )

    def _coding(self) -> str:
        """How the body is packed, "" for not at all. No coding was accepted, and proxies do it all the same: that is
        no word on the engine behind them, also where it cannot be unpacked here."""
        codings = [each for each in listed(self._response.headers, "content-encoding") if each != "identity"]
        if not codings:
            return ""
        if len(codings) == 1 and codings[0] in KNOWN:
            return codings[0]
        named = self._excerpt(", ".join(codings))
        raise unseen(
            "answer-compressed",
            f"{self._what} answered in {named} although no compression was accepted",
            expected="identity",
            actual=named,
        )

    async def blocks(self, max_bytes: int) -> AsyncGenerator[bytes, None]:
        """The body as it comes. Raises Fault ``body-too-large`` once ``max_bytes`` are passed, unpacked or not."""
        packed = unpacked = 0
        unpacker = Unpacker(self._packed) if self._packed else None
        came = self._response.aiter_raw()
        assert isinstance(came, AsyncGenerator)
        async with aclosing(came) as raw:
            async for block in raw:
                packed += len(block)
                for piece in self._unpacked(unpacker, block):
                    unpacked += len(piece)
                    if max(packed, unpacked) > max_bytes:
                        raise self._too_large(max_bytes, max(packed, unpacked), piece)
                    yield piece
                if packed > max_bytes:
                    raise self._too_large(max_bytes, packed, block)
        if unpacker is not None and packed and not unpacked and not unpacker.ended:
            raise self._not_packed("it ends before anything was unpacked")

    def _unpacked(self, unpacker: Unpacker | None, block: bytes) -> Iterator[bytes]:
        if unpacker is None:
            yield block
            return
        try:
            yield from unpacker.feed(block)
        except ValueError as err:
            raise self._not_packed(str(err)) from None

    def _not_packed(self, why: str) -> Fault:
        return Fault(
            "answer-compressed", f"{self._what} answered with a body that cannot be unpacked: {why}", actual=why
        )

    def _too_large(self, max_bytes: int, got: int, block: bytes) -> Fault:
        return Fault(
            "body-too-large",
            f"{self._what} answered more than {max_bytes:,} bytes",
            expected=f"at most {max_bytes:,} bytes",
            actual=f"{got:,} bytes and more",
            evidence=self._excerpt(block),
        )

    async def rest(self, max_bytes: int, begun: bytes = b"", blocks: AsyncIterator[bytes] | None = None) -> bytes:
        """The whole body, of which ``begun`` was read already from ``blocks``. The caller sets the deadline."""
        body = bytearray(begun)
        async for block in blocks or self.blocks(max_bytes):
            body += block
            if len(body) > max_bytes:
                raise self._too_large(max_bytes, len(body), block)
        self._note(bytes(body))
        return bytes(body)
