"""Ranges of files over HTTP, from servers that may be slow, lie, break off or send one elsewhere.

Every request has a deadline for all of it, every answer a bound on its bytes, and all of them together too. Redirects
are followed by hand, so that the token goes to the hub alone and never over plain HTTP.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from urllib.parse import urljoin

import httpx

from archonctl import __version__
from archonctl.errors import ModelError
from archonctl.model.remote_address import is_local, may_carry_token, without_query
from archonctl.model.remote_token import Token

_RANGE = re.compile(r"bytes (?:([0-9]{1,18})-([0-9]{1,18})|\*)/([0-9]{1,18})", re.ASCII)
_REDIRECTS = (301, 302, 303, 307, 308)
_AGAIN = (408, 429, 500, 502, 503, 504)


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds in seconds, bytes and counts."""

    connect_s: float = 10.0
    request_s: float = 60.0
    pause_s: float = 0.5
    tries: int = 3
    redirects: int = 5
    at_once: int = 8
    whole_bytes: int = 32 * 1024 * 1024
    """So much is taken of a server that knows no ranges and sends the whole file."""
    all_bytes: int = 1024 * 1024 * 1024
    all_s: float = 600.0


LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class Part:
    """Bytes of a file from ``start`` on, its size in all, and its validator ("" where the server gives none)."""

    start: int
    data: bytes
    size: int
    etag: str


@dataclass(slots=True)
class _Linked:
    """What the hub itself said of a file before it sent on to its store (X-Linked-Etag, X-Linked-Size)."""

    etag: str = ""
    size: int | None = None


class _Again(Exception):
    """The server is busy, or the connection broke: worth another try."""


class Web:
    """The client, as a context manager. ``hub`` is where ``token`` may go; ``transport`` stands in for the network."""

    def __init__(
        self,
        hub: str = "",
        token: Token | None = None,
        limits: Limits = LIMITS,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._hub, self._token, self._limits, self._transport = hub, token, limits, transport
        self._left = limits.all_bytes
        self._until = time.monotonic() + limits.all_s
        self._runner = asyncio.Runner()
        self._clients: dict[bool, httpx.AsyncClient] = {}
        self.requests = 0

    def __enter__(self) -> Web:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, err: BaseException | None, trace: TracebackType | None
    ) -> None:
        for client in self._clients.values():
            self._runner.run(client.aclose())
        self._runner.close()

    def get(self, url: str, start: int, count: int) -> Part:
        """Up to ``count`` bytes from ``start``; fewer at the end of the file, none past it.

        Raises ModelError: ``model-missing``, ``model-remote-denied``, ``model-remote-failed``, ``model-remote-slow``,
        ``model-remote-lied``, ``model-remote-redirect`` or ``model-remote-no-ranges``.
        """
        return self._runner.run(self._tried(url, start, count))

    def get_many(self, urls: Sequence[str], count: int) -> list[Part | ModelError]:
        """The beginnings of many files, some at once; an error in the place of each that failed."""
        return self._runner.run(self._all(urls, count))

    async def _all(self, urls: Sequence[str], count: int) -> list[Part | ModelError]:
        gate = asyncio.Semaphore(self._limits.at_once)

        async def one(url: str) -> Part | ModelError:
            async with gate:
                try:
                    return await self._tried(url, 0, count)
                except ModelError as err:
                    return err

        return list(await asyncio.gather(*(one(url) for url in urls)))

    async def _tried(self, url: str, start: int, count: int) -> Part:
        said = ""
        for attempt in range(self._limits.tries):
            if attempt:
                await asyncio.sleep(self._limits.pause_s * 2 ** (attempt - 1))
            seconds = min(self._limits.request_s, self._until - time.monotonic())
            try:
                async with asyncio.timeout(seconds):
                    return await self._hops(url, start, count)
            except TimeoutError:
                message = (
                    f"did not answer in {max(seconds, 0):.3g} s ({self._limits.all_s:g} s are for the whole model)"
                )
                raise _error("model-remote-slow", url, message, "try again, or fetch the file") from None
            except httpx.InvalidURL as err:
                raise _error("model-remote-address", url, f"cannot be understood: {err}") from None
            except (httpx.HTTPError, _Again) as err:
                said = self._clean(str(err) or type(err).__name__)
        message = f"cannot be reached after {self._limits.tries} tries: {said}"
        raise _error("model-remote-failed", url, message, "check the network, HF_ENDPOINT and the proxy variables")

    async def _hops(self, url: str, start: int, count: int) -> Part:
        linked, place = _Linked(), url
        for _ in range(self._limits.redirects + 1):
            self.requests += 1
            async with self._client(place).stream("GET", place, headers=self._headers(place, start, count)) as answer:
                if answer.status_code not in _REDIRECTS:
                    return await self._part(answer, url, start, count, linked)
                linked.etag = linked.etag or answer.headers.get("x-linked-etag", "")
                if (size := answer.headers.get("x-linked-size", "")).isascii() and size.isdigit() and len(size) < 19:
                    linked.size = int(size)
                place = _next(place, answer.headers.get("location", ""), url)
        raise _error("model-remote-redirect", url, f"sends on more than {self._limits.redirects} times")

    def _client(self, url: str) -> httpx.AsyncClient:
        """The proxies of the environment count, but not for this machine itself."""
        local = is_local(url)
        if local not in self._clients:
            self._clients[local] = httpx.AsyncClient(
                trust_env=not local,
                follow_redirects=False,
                timeout=httpx.Timeout(None, connect=self._limits.connect_s),
                limits=httpx.Limits(max_connections=self._limits.at_once),
                transport=self._transport,
            )
        return self._clients[local]

    def _headers(self, url: str, start: int, count: int) -> dict[str, str]:
        headers = {
            "Range": f"bytes={start}-{start + count - 1}",
            "Accept-Encoding": "identity",
            "User-Agent": f"archonctl/{__version__}",
        }
        if self._token is not None and may_carry_token(url, self._hub):
            headers["Authorization"] = f"Bearer {self._token.value}"
        return headers

    async def _part(self, answer: httpx.Response, url: str, start: int, count: int, linked: _Linked) -> Part:
        status = answer.status_code
        if status in _AGAIN:
            raise _Again(f"the server says {status}")
        if status in (401, 403):
            raise self._denied(url, status)
        if status in (404, 410):
            raise _error("model-missing", url, f"is not there (the server says {status})", "correct the address")
        if answer.headers.get("content-encoding", "identity") not in ("identity", ""):
            raise _error("model-remote-lied", url, "is sent compressed although plain bytes were asked for")
        etag = linked.etag or answer.headers.get("etag", "")
        if status == 416:
            return Part(start, b"", self._size_of(answer, url), etag)
        if status == 206:
            first, last, size = self._range_of(answer, url, start)
            if linked.size is not None and linked.size != size:
                message = f"has {linked.size:,} bytes by the hub and {size:,} by its store"
                raise _error("model-remote-lied", url, message)
            wanted = min(count, size - first)
            wanted = min(wanted, last - first + 1)  # a server may send less of a range than was asked for
            return Part(start, await self._body(answer, url, wanted, exact=True), size, etag)
        if status == 200:
            return await self._whole(answer, url, start, count, etag)
        raise _error("model-remote-failed", url, f"the server says {status}")

    async def _whole(self, answer: httpx.Response, url: str, start: int, count: int, etag: str) -> Part:
        """The server knows no ranges: its file from the beginning, and no more of it than is needed."""
        said = answer.headers.get("content-length", "")
        if not (said.isascii() and said.isdigit() and len(said) < 19):
            data = await self._unsized(answer, url)
            return Part(start, data[start : start + count], len(data), etag)
        size = int(said)
        if start + min(count, size) > self._limits.whole_bytes and size > self._limits.whole_bytes:
            message = f"has {size:,} bytes and comes whole; at most {self._limits.whole_bytes:,} are taken so"
            raise _error("model-remote-no-ranges", url, message, "use a server that knows ranges, or fetch the file")
        data = await self._body(answer, url, min(start + count, size), exact=False)
        return Part(start, data[start:], size, etag)

    async def _unsized(self, answer: httpx.Response, url: str) -> bytes:
        """All of an answer that does not say how long it is, as servers make them up as they go."""
        got = bytearray()
        async for block in answer.aiter_raw():
            got += block
            if len(got) > self._limits.whole_bytes:
                message = f"comes whole and without its size, and is more than {self._limits.whole_bytes:,} bytes"
                raise _error("model-remote-no-ranges", url, message, "use a server that knows ranges")
        self._left -= len(got)
        return bytes(got)

    async def _body(self, answer: httpx.Response, url: str, wanted: int, *, exact: bool) -> bytes:
        got = bytearray()
        async for block in answer.aiter_raw():
            self._left -= len(block)
            if self._left < 0:
                message = f"more than {self._limits.all_bytes:,} bytes were read for one model"
                raise _error("model-remote-lied", url, message)
            got += block
            if len(got) > wanted and exact:
                raise _error("model-remote-lied", url, f"sends more than the {wanted:,} bytes that it promised")
            if len(got) >= wanted and not exact:
                break
        if len(got) < wanted:
            raise _Again(f"{len(got):,} of {wanted:,} bytes came")
        return bytes(got[:wanted])

    def _range_of(self, answer: httpx.Response, url: str, start: int) -> tuple[int, int, int]:
        said = answer.headers.get("content-range", "")
        found = _RANGE.fullmatch(said.strip())
        if found is None or found[1] is None:
            raise _error("model-remote-lied", url, f"sends a part and says of it {said[:60]!a}")
        first, last, size = int(found[1]), int(found[2]), int(found[3])
        if first != start or not first <= last < size:
            raise _error("model-remote-lied", url, f"was asked for byte {start:,} and sends {said[:60]!a}")
        return first, last, size

    def _size_of(self, answer: httpx.Response, url: str) -> int:
        found = _RANGE.fullmatch(answer.headers.get("content-range", "").strip())
        if found is None:
            raise _error("model-remote-lied", url, "refuses the range and does not say how large the file is")
        return int(found[3])

    def _denied(self, url: str, status: int) -> ModelError:
        if self._token is None:
            hint = "if it is private or gated: set HF_TOKEN, or log in so that there is a token file"
            return _error("model-remote-denied", url, f"is refused without a token ({status}), or not there", hint)
        if not may_carry_token(url, self._hub):
            return _error("model-remote-denied", url, f"is refused ({status}); the hub's token is not sent there")
        message = f"is refused ({status}) with {self._token}"
        return _error("model-remote-denied", url, message, "accept the model's terms on its page, or use another token")

    def _clean(self, text: str) -> str:
        text = text if self._token is None else text.replace(self._token.value, "[token]")
        return re.sub(r"(https?://[^\s?]+)\?\S*", r"\1", text)[:300]


def _next(place: str, location: str, url: str) -> str:
    try:
        target = urljoin(place, location)
        parts = httpx.URL(target)
    except (ValueError, httpx.InvalidURL):
        raise _error("model-remote-redirect", url, "sends on to an address that cannot be understood") from None
    if not location or parts.scheme not in ("https", "http") or parts.userinfo:
        raise _error("model-remote-redirect", url, f"sends on to {without_query(target)!a}, which is not followed")
    if parts.scheme == "http" and place.startswith("https:"):
        raise _error("model-remote-redirect", url, f"sends on from https to {without_query(target)!a}")
    return target


def _error(code: str, url: str, message: str, hint: str = "") -> ModelError:
    return ModelError(code, message, where=without_query(url), hint=hint)
