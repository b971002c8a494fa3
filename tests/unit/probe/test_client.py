"""The client's own bounds, and whose fault a failed connection is."""

from __future__ import annotations

import asyncio
import errno
import gzip
import os
import socket
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from archonctl.probe.address import Addresses
from archonctl.probe.client import Answer, Http
from archonctl.probe.faults import Fault
from archonctl.probe.limits import Limits
from archonctl.probe.run import probe_endpoint
from support import lying_server as lies
from support.lying_server import Engine, lying_server
from support.probing import API, ROOMY, boot_ledger, endpoint, leg, told


def get(lie: Callable[[lies.Handler], None], total_s: float = 60.0, max_bytes: int = 1000) -> Answer:
    async def ask(base: str) -> Answer:
        async with Http(Addresses(base, base), "", ROOMY) as http:
            return await http.get("/x", total_s, max_bytes)

    with lying_server(Engine(override={"/x": lie})) as server:
        return asyncio.run(ask(f"http://{server.listen}"))


def code_of(lie: Callable[[lies.Handler], None], **options: float) -> str:
    with pytest.raises(Fault) as caught:
        get(lie, **options)  # type: ignore[arg-type]
    return caught.value.code


def test_a_whole_answer_up_to_the_bound_is_read() -> None:
    answer = get(lies.answers(200, b"x" * 1000, "text/plain; charset=utf-8"))
    assert (answer.status, len(answer.body), answer.content_type) == (200, 1000, "text/plain")


def test_one_byte_more_is_too_much() -> None:
    assert code_of(lies.answers(200, b"x" * 1001)) == "body-too-large"


def test_a_trickle_is_beaten_by_the_deadline() -> None:
    assert code_of(lies.trickle, total_s=0.4) == "request-timeout"


def test_a_head_without_end_is_beaten_by_the_deadline() -> None:
    assert code_of(lies.trickle_head, total_s=0.4) == "request-timeout"


def test_a_bomb_goes_off_no_further_than_the_bound() -> None:
    assert code_of(lies.answers(200, gzip.compress(b"0" * 10_000_000), Content_Encoding="gzip")) == "body-too-large"


def test_a_redirect_is_not_followed() -> None:
    assert code_of(lies.answers(301, b"", Location="http://127.0.0.1:1/")) == "redirected"


def test_a_cut_body_is_a_dropped_connection() -> None:
    def cut(handler: lies.Handler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "100")
        handler.end_headers()
        handler.wfile.write(b"half")

    assert code_of(cut) == "connection-dropped"


def test_connections_are_not_reused() -> None:
    async def ask(base: str) -> None:
        async with Http(Addresses(base, base), "", ROOMY) as http:
            for _ in range(3):
                await http.get("/health", 60.0, 1000)

    with lying_server(Engine()) as server:
        asyncio.run(ask(f"http://{server.listen}"))
        assert all(headers["connection"] == "close" for headers in server.headers)


class Failing(httpx.AsyncBaseTransport):
    """Every connection ends in this error of the system."""

    def __init__(self, error: OSError) -> None:
        self.error = error

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("failed") from self.error


OURS = [OSError(number, os.strerror(number)) for number in (errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL)]


@pytest.mark.parametrize(
    ("error", "word", "code"),
    [
        *((error, "no evidence", "probe-out-of-resources") for error in OURS),
        (socket.gaierror(-2, "Name or service not known"), "no evidence", "host-unresolved"),
        (ConnectionRefusedError(errno.ECONNREFUSED, "refused"), "broken", "connect-refused"),
        (OSError(errno.EHOSTUNREACH, "No route to host"), "broken", "connect-failed"),
    ],
    ids=str,
)
def test_what_is_not_the_engines_fault_is_no_evidence(error: OSError, word: str, code: str) -> None:
    declared = endpoint("127.0.0.1:9", 2, 400)
    verdict = probe_endpoint(declared, API, boot_ledger(800, 2, 400), limits=ROOMY, transport=Failing(error))
    assert (verdict.word, leg(verdict, "transport").code) == (word, code), told(verdict)


def test_a_full_accept_queue_is_a_connect_timeout() -> None:
    with socket.socket() as listener, socket.socket() as first, socket.socket() as second:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        first.connect(listener.getsockname())
        second.setblocking(False)
        second.connect_ex(listener.getsockname())
        port = listener.getsockname()[1]
        limits = Limits(connect_s=0.3, read_s=1.0)
        verdict = probe_endpoint(endpoint(f"127.0.0.1:{port}", 2, 400), API, None, limits=limits)
    assert leg(verdict, "transport").code in ("connect-timeout", ""), told(verdict)
    assert verdict.word == "broken"


def test_an_interrupt_is_not_lost_to_a_stream_that_fails_of_it() -> None:
    from archonctl.probe.run import _Run
    from archonctl.probe.session import Session
    from archonctl.probe.values import Extras

    async def main(listen: str) -> None:
        where = Addresses(f"http://{listen}", f"http://{listen}")
        async with Http(where, "", ROOMY) as http:
            session = Session(http, endpoint(listen, 1, 16), API, None, ROOMY, lambda _event: None)
            run = _Run(session, lambda _leg: None, "ledger", False, Extras(), None)

            async def fails_of_it(_session: Session) -> Any:
                try:
                    await asyncio.sleep(60)
                except asyncio.CancelledError:
                    raise Fault("connection-dropped", "closed") from None

            task = asyncio.create_task(run._leg("x", fails_of_it, ()))
            await asyncio.sleep(0)
            task.cancel()
            await task

    with lying_server(Engine()) as server, pytest.raises(asyncio.CancelledError):
        asyncio.run(main(server.listen))
