"""A small HTTP client that an unsound server can neither hang, fill nor lead elsewhere.

Every request has a connect bound, a total deadline (which beats a server that sends a byte a second) and a bound on
the bytes read, unpacked ones too. Redirects are reported, never followed, and cookies not kept (one might send all
requests to one of several replicas); the environment's proxies are ignored; connections are not reused, because a
server that closes an idle one would look like a server that died.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from http.cookiejar import CookieJar, DefaultCookiePolicy
from types import TracebackType

import httpx

from archonctl.probe.address import Addresses
from archonctl.probe.body import Stream, is_json
from archonctl.probe.faults import Fault, unseen
from archonctl.probe.jsonread import parse_json
from archonctl.probe.limits import Limits
from archonctl.probe.tls import Certificate, certificate_of, tls_context, tls_fault
from archonctl.probe.values import Proof
from archonctl.redact import Redactor

_OURS = {errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL, errno.ENOMEM, errno.ENOBUFS}
_AUTH = {401, 403}
_CLOSED_KEPT = 4096
_NOTED = 8192
"""Bytes of an answer that are looked at for its proof."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One whole answer. ``body`` is at most the bound that the caller gave."""

    status: int
    body: bytes
    content_type: str
    retry_after: str = ""


class Http:
    """The client, for use as an async context manager. ``key`` goes out as a bearer token and never comes back."""

    def __init__(
        self, where: Addresses, key: str, limits: Limits, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        """Raises DeclarationError ``ca-file-invalid``."""
        self.where = where
        self.base = where.own
        self.has_key = bool(key)
        self.limits = limits
        self.requests = 0
        self.generating: frozenset[str] = frozenset()
        """Paths on which a request occupies the engine."""
        self.open_now = 0
        """Requests on those paths that are open."""
        self.closed_at: deque[float] = deque(maxlen=_CLOSED_KEPT)
        """When the last of them were closed, by the loop's clock: an engine may count one for a while longer."""
        self.exchanges: dict[tuple[str, int], Proof] = {}
        """What was asked since this was last emptied: one for each request line and status."""
        self._redact = Redactor((key,))
        self.excerpt = self._redact.excerpt
        headers = {"Accept-Encoding": "identity", "Connection": "close", "User-Agent": "archonctl-probe"}
        if key:
            headers["Authorization"] = f"Bearer {key}"
        self._client = httpx.AsyncClient(
            headers=headers,
            verify=tls_context(where.ca_file) if where.public.startswith("https:") else False,
            trust_env=False,
            follow_redirects=False,
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),
            timeout=httpx.Timeout(None, connect=limits.connect_s),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=0),
            transport=transport,
        )

        self.certificate: Certificate | None = None

    async def __aenter__(self) -> Http:
        await self._client.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, err: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.__aexit__(kind, err, trace)

    async def get(self, path: str, total_s: float, max_bytes: int) -> Answer:
        """One GET, whole. Raises Fault."""
        return await self._whole("GET", path, None, total_s, max_bytes)

    async def post(self, path: str, body: bytes, total_s: float, max_bytes: int, *, key: str | None = None) -> Answer:
        """One POST of JSON, whole; with another key than the declared one, or none (""). Raises Fault."""
        return await self._whole("POST", path, body, total_s, max_bytes, key)

    async def _whole(
        self, method: str, path: str, body: bytes | None, total_s: float, max_bytes: int, key: str | None = None
    ) -> Answer:
        got = bytearray()
        try:
            async with asyncio.timeout(total_s), self.open(method, path, body, key) as stream:
                async for block in stream.blocks(max_bytes):
                    got += block
                self.note(method, path, stream.status, bytes(got))
                return Answer(stream.status, bytes(got), stream.content_type, stream.retry_after)
        except TimeoutError:
            raise Fault(
                "request-timeout",
                f"{method} {path} was not answered in {total_s:g} s ({len(got):,} bytes came)",
                expected=f"an answer in {total_s:g} s",
                actual=f"{len(got):,} bytes",
                evidence=self.excerpt(bytes(got)),
            ) from None

    @asynccontextmanager
    async def open(self, method: str, path: str, body: bytes | None, key: str | None = None) -> AsyncIterator[Stream]:
        """The answer as it comes. The caller sets the deadline. Raises Fault."""
        self.requests += 1
        occupies = path in self.generating
        self.open_now += occupies
        headers = {"Content-Type": "application/json"} if body is not None else {}
        if key is not None:
            headers["Authorization"] = f"Bearer {key}"
        url = self.where.base(path) + path
        try:
            request = self._client.build_request(method, url, content=body, headers=headers)
            if key == "":
                del request.headers["Authorization"]
            response = await self._client.send(request, stream=True)
            try:
                self.certificate = self.certificate or certificate_of(response)
                note = partial(self.note, method, path, response.status_code)
                yield Stream(response, f"{method} {path}", self.excerpt, note)
            finally:
                await response.aclose()
        except httpx.HTTPError as err:
            raise self._fault(err, method, path) from err
        except httpx.InvalidURL as err:
            raise unseen("address-invalid", f"{url} is not an address: {err}") from err
        finally:
            if occupies:
                self.open_now -= 1
                self.closed_at.append(asyncio.get_running_loop().time())

    def note(self, method: str, path: str, status: int, body: bytes | str) -> None:
        """Keep what was answered, as a proof; alike ones are counted."""
        place = (f"{method} {path}", status)
        before = self.exchanges.pop(place, None)
        times = before.times + 1 if before else 1
        text = self.excerpt(body[:_NOTED])  # longer than what is shown of it by far, so that no secret is cut in half
        self.exchanges[place] = Proof("http", place[0], text, status=status, times=times)

    def _fault(self, err: httpx.HTTPError, method: str, path: str) -> Fault:
        place = f"{method} {self.where.base(path)}{path}"
        cause = _os_error(err)
        if isinstance(cause, ssl.SSLError):
            raise tls_fault(cause, place) from err
        if cause is not None and cause.errno in _OURS:
            return unseen("probe-out-of-resources", f"{place}: this machine cannot open a connection: {cause.strerror}")
        if isinstance(err, httpx.ConnectError | httpx.ConnectTimeout):
            return self._connect_fault(err, cause, place)
        said = self.excerpt(str(err))
        if isinstance(err, httpx.RemoteProtocolError) and "disconnect" not in said and "closed" not in said:
            return Fault("answer-not-http", f"{place}: what listens there does not speak HTTP: {said}")
        return Fault(
            "connection-dropped", f"{place}: the connection was dropped before the answer was whole", actual=said
        )

    def _connect_fault(self, err: httpx.HTTPError, cause: OSError | None, place: str) -> Fault:
        if isinstance(err, httpx.ConnectTimeout):
            return Fault("connect-timeout", f"{place}: no connection in {self.limits.connect_s:g} s")
        if isinstance(cause, socket.gaierror):
            return unseen("host-unresolved", f"{place}: the host name is not known: {cause.strerror}")
        if isinstance(cause, ConnectionRefusedError):
            base = place.partition(" ")[2]
            return Fault("connect-refused", f"nothing listens for {base}", actual="connection refused")
        return Fault("connect-failed", f"{place}: {self.excerpt(str(cause or err))}")

    def json(self, answer: Answer, what: str) -> object:
        """The JSON of a 200 answer. Raises Fault for any other status or content."""
        self.must_be_ok(answer, what)
        return self.read_json(answer.content_type, answer.body, what)

    def read_json(self, content_type: str, body: bytes, what: str) -> object:
        """The JSON in a body. Clients read it under any content type; what is none by its type and its content is
        Fault ``answer-wrong-type``, and what is none by its content alone is as ``parse_json`` says."""
        evidence = self.excerpt(body)
        if is_json(content_type):
            return parse_json(body, evidence)
        try:
            found = parse_json(body)
        except Fault:
            found = None
        if isinstance(found, dict | list):
            return found
        raise Fault(
            "answer-wrong-type",
            f"{what} answered {self.excerpt(content_type) or 'no content type'} instead of application/json",
            expected="application/json",
            actual=self.excerpt(content_type) or "none",
            evidence=evidence,
        )

    def must_be_ok(self, answer: Answer, what: str) -> None:
        """Raise Fault unless the status is 200. A refused key, and a rate that is limited, are "no evidence"."""
        evidence = self.excerpt(answer.body)
        if answer.status in _AUTH:
            raise self.auth_fault(answer.status, what, evidence)
        if answer.status == 429:
            raise unseen(
                "engine-busy",
                f"{what} answered HTTP 429 to a small request, again and again: {evidence}",
                expected="HTTP 200",
                actual="HTTP 429",
                evidence=evidence,
            )
        if answer.status != 200:
            raise Fault(
                "answer-wrong-status",
                f"{what} answered HTTP {answer.status}",
                expected="HTTP 200",
                actual=f"HTTP {answer.status}",
                evidence=evidence,
            )

    def auth_fault(self, status: int, what: str, evidence: str) -> Fault:
        """401 or 403: the probe may not look, which says nothing of the contract."""
        if self.has_key:
            return unseen(
                "auth-refused",
                f"{what} answered HTTP {status} to the key of service.api_key_file",
                actual=f"HTTP {status}",
                evidence=evidence,
            )
        return unseen(
            "auth-required",
            f"{what} answered HTTP {status}: the engine wants an API key and service.api_key_file names none",
            actual=f"HTTP {status}",
            evidence=evidence,
        )


def _os_error(err: BaseException | None) -> OSError | None:
    """The system's own error at the bottom of an exception chain; of several addresses, the first refusal."""
    seen: set[int] = set()
    found: OSError | None = None
    while err is not None and id(err) not in seen:
        seen.add(id(err))
        if isinstance(err, BaseExceptionGroup):
            inner = [_os_error(each) for each in err.exceptions]
            return next((e for e in inner if e is not None), found)
        if isinstance(err, OSError):
            found = err
        err = err.__cause__ or err.__context__
    return found
