"""The way to an engine over TLS and by its name, and its end."""

from __future__ import annotations

import asyncio
import datetime
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import pytest
import trustme
import uvloop

from archonctl.guard import upstream
from archonctl.guard.limits import Limits
from archonctl.guard.upstream import EngineAway, EngineFault, Request, Upstream

ASK = Request("GET", "/", [], b"")
LARGE = 12 << 20
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
T = TypeVar("T")


@contextmanager
def engine(
    answer: Callable[[socket.socket], None], cert: trustme.LeafCert | None = None, host: str = "127.0.0.1"
) -> Iterator[int]:
    """An engine that reads a request and answers, over TLS where it has a certificate; its port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.create_server((host, 0), family=family)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if cert is not None:
        cert.configure_cert(context)

    def one(plain: socket.socket) -> None:
        with suppress(OSError), context.wrap_socket(plain, server_side=True) if cert is not None else plain as line:
            text = b""
            while b"\r\n\r\n" not in text:
                if not (piece := line.recv(65536)):
                    return
                text += piece
            answer(line)

    def run() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=one, args=(listening.accept()[0],), daemon=True).start()

    threading.Thread(target=run, daemon=True).start()
    try:
        yield listening.getsockname()[1]
    finally:
        listening.close()


def says_ok(line: socket.socket) -> None:
    line.sendall(OK)


async def asked(base: str, ca: Path | None = None) -> bytes:
    async with Upstream(base, Limits(), str(ca or "")) as asking:
        for _ in range(3):  # over a connection of its own, and over one that was opened ahead
            async with asking.send(ASK) as answer:
                got = await answer.read()
            await asyncio.sleep(0)
        return got


def run(work: Awaitable[T]) -> T:
    async def main() -> T:
        return await work

    return uvloop.run(main())


@pytest.fixture(scope="module")
def ca(tmp_path_factory: pytest.TempPathFactory) -> tuple[trustme.CA, Path]:
    authority, path = trustme.CA(), tmp_path_factory.mktemp("ca") / "ca.pem"
    authority.cert_pem.write_to_path(str(path))
    return authority, path


@pytest.mark.parametrize(("host", "named"), [("127.0.0.1", "127.0.0.1"), ("127.0.0.1", "localhost"), ("::1", "[::1]")])
@pytest.mark.parametrize("secure", [False, True])
def test_an_engine_is_asked_by_its_name_or_address(
    ca: tuple[trustme.CA, Path], host: str, named: str, secure: bool
) -> None:
    cert = ca[0].issue_cert(named.strip("[]")) if secure else None
    with engine(says_ok, cert, host) as port:
        assert run(asked(f"http{'s' if secure else ''}://{named}:{port}", ca[1] if secure else None)) == b"ok"


def test_a_certificate_that_is_not_the_engines_is_told_at_once(ca: tuple[trustme.CA, Path]) -> None:
    long_ago = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    expired = ca[0].issue_cert("localhost", not_before=long_ago, not_after=long_ago + datetime.timedelta(days=1))
    others = {
        "expired": expired,
        "mismatch": ca[0].issue_cert("elsewhere.example"),
        "issuer": trustme.CA().issue_cert("localhost"),
    }
    for why, cert in others.items():
        with engine(says_ok, cert) as port, pytest.raises(EngineFault, match=why) as raised:
            run(asked(f"https://localhost:{port}", ca[1]))
        assert (raised.value.refusal.code, type(raised.value)) == ("engine-away", EngineFault)


@pytest.mark.parametrize("base", ["http://no-such-host.invalid:80", "http://a..b:80", "https://127.0.0.1:1"])
def test_an_address_where_nobody_is_is_an_engine_that_is_away(base: str) -> None:
    with pytest.raises(EngineAway):
        run(asked(base))


@pytest.mark.parametrize("secure", [False, True])
def test_a_large_answer_that_is_taken_slowly_comes_whole(ca: tuple[trustme.CA, Path], secure: bool) -> None:
    def large(line: socket.socket) -> None:
        line.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % LARGE)
        line.sendall(b"x" * LARGE)

    async def slowly(base: str) -> int:
        size = count = 0
        async with Upstream(base, Limits(), str(ca[1])) as asking, asking.send(ASK) as answer:
            async for piece in answer.pieces():
                size, count = size + len(piece), count + 1
                await asyncio.sleep(0.02 if count < 20 else 0)
        return size

    with engine(large, ca[0].issue_cert("localhost") if secure else None) as port:
        for _ in range(3):
            assert run(slowly(f"http{'s' if secure else ''}://localhost:{port}")) == LARGE


@pytest.mark.parametrize(
    ("ends_unanswered", "listens_on", "answers"), [(True, False, False), (True, True, True), (False, False, True)]
)
def test_who_waits_for_an_engine_that_listens_no_more_is_told_if_it_answers_nobody_then(
    monkeypatch: pytest.MonkeyPatch, ends_unanswered: bool, listens_on: bool, answers: bool
) -> None:
    monkeypatch.setattr(upstream, "LOOK_S", 0.02)

    async def test() -> bytes:
        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if await reader.read(1000):
                if not listens_on:
                    server.close()
                if answers:
                    await asyncio.sleep(0.3)
                    writer.write(OK)
                await reader.read()  # to the end of its client
            writer.close()

        server = await asyncio.start_server(handle, "127.0.0.1", 0)
        base = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            async with Upstream(base, Limits(), ends_unanswered=ends_unanswered) as asking, asking.send(ASK) as answer:
                return await answer.read()
        except EngineFault as fault:
            return fault.refusal.code.encode()
        finally:
            server.close()

    assert run(test()) == (b"ok" if answers else b"engine-lost")


def test_nothing_is_opened_after_the_end() -> None:
    async def test(port: int) -> set[asyncio.Task[object]]:
        async with Upstream(f"http://127.0.0.1:{port}", Limits()) as engine_at:
            asking = engine_at.send(ASK)
            await (await asking.__aenter__()).read()
        await asking.__aexit__(None, None, None)  # a request that was cancelled while the guard ended
        return asyncio.all_tasks() - {asyncio.current_task()}

    with engine(says_ok) as port:
        assert not run(test(port))
