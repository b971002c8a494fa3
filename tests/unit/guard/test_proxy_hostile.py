"""Requests that are malformed, huge, slow or meant to be read in two ways: typed refusals, nothing for the engine."""

from __future__ import annotations

import json
import re
import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace

import httpx
import pytest

from archonctl.guard.limits import Limits
from archonctl.guard.serve import allow_files
from support.echo_engine import EchoEngine, echo_engine
from support.engines import wait_for
from support.guarding import Guarded, guarded, raw

TIGHT = Limits(body_bytes=100_000, bodies_bytes=150_000, head_bytes=8192, connections=20)
HASTY = replace(TIGHT, head_s=0.6, body_s=0.6, body_total_s=1.5, write_s=1.0, idle_s=1.0)
"""Only for what shall be late: on a busy machine everybody may be."""


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[EchoEngine, Guarded]]:
    with echo_engine() as (engine, port), guarded(port, limits=TIGHT) as guard:
        yield engine, guard


@pytest.fixture(scope="module")
def hasty() -> Iterator[tuple[EchoEngine, Guarded]]:
    with echo_engine() as (engine, port), guarded(port, limits=HASTY) as guard:
        yield engine, guard


def refusal(got: bytes) -> tuple[int, str]:
    """Status and code of what came back, which must be one typed answer and then the end of the connection."""
    head, _, body = got.partition(b"\r\n\r\n")
    return int(head.split(b" ")[1]), json.loads(body)["error"]["code"]


def post(headers: str, body: str = "", path: str = "/v1/chat/completions") -> bytes:
    return f"POST {path} HTTP/1.1\r\nHost: x\r\n{headers}\r\n\r\n{body}".encode("latin-1")


SMUGGLED = "GET /secret HTTP/1.1\r\nHost: x\r\n\r\n"
HOSTILE = {
    "length and chunks": (post("Content-Length: 4\r\nTransfer-Encoding: chunked", "0\r\n\r\n" + SMUGGLED), 400),
    "chunks and length": (post("Transfer-Encoding: chunked\r\nContent-Length: 4", "0\r\n\r\n" + SMUGGLED), 400),
    "two lengths": (post("Content-Length: 0\r\nContent-Length: 40", SMUGGLED), 400),
    "a list of lengths": (post("Content-Length: 0, 40", SMUGGLED), 400),
    "a signed length": (post("Content-Length: +40", SMUGGLED), 400),
    "a negative length": (post("Content-Length: -1", SMUGGLED), 400),
    "an endless length": (post("Content-Length: " + "9" * 400), 400),
    "another coding": (post("Transfer-Encoding: gzip, chunked", "0\r\n\r\n" + SMUGGLED), 501),
    "chunked twice": (post("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", "0\r\n\r\n" + SMUGGLED), 501),
    "chunked misspelt": (post("Transfer-Encoding: xchunked", "0\r\n\r\n" + SMUGGLED), 501),
    "space before the colon": (post("Transfer-Encoding : chunked", "0\r\n\r\n" + SMUGGLED), 400),
    "a folded header": (post("X: a\r\n  Transfer-Encoding: chunked\r\nContent-Length: 2", "{}"), 200),
    "a bare carriage return": (post("X: a\rTransfer-Encoding: chunked"), 400),
    "a null": (post("X: a\0b"), 400),
    "a chunk that is no number": (post("Transfer-Encoding: chunked", "zz\r\n"), 400),
    "a huge chunk number": (post("Transfer-Encoding: chunked", "f" * 40 + "\r\n"), 400),
    "two hosts": (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
    "no host": (b"GET / HTTP/1.1\r\n\r\n", 400),
    "no HTTP": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
    "another version": (b"GET / HTTP/3.1\r\nHost: x\r\n\r\n", 505),
    "no path": (b"GET v1/models HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "a fragment": (b"GET /a#b HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "half an escape": (post("Content-Length: 2", "{}", "/v1/chat/%u0063ompletions"), 400),
    "an escape that breaks off": (post("Content-Length: 2", "{}", "/v1/chat/completion%7"), 400),
    "another encoding": (
        post("Content-Length: 12\r\nConnection: close", '{"a":1}'.encode("utf-16-le")[:12].decode("latin-1")),
        400,
    ),
    "asterisk": (b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "a tunnel": (b"CONNECT elsewhere:443 HTTP/1.1\r\nHost: x\r\n\r\n", 405),
    "trace": (b"TRACE / HTTP/1.1\r\nHost: x\r\n\r\n", 405),
    "an invented method": (b"STEAL / HTTP/1.1\r\nHost: x\r\n\r\n", 405),
    "bytes that are no text": (b"GET / HTTP/1.1\r\nHost: x\r\nX: \xff\xfe\r\n\r\n", 400),
    "endless headers": (b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 10_000, 431),
    "many headers": (b"GET / HTTP/1.1\r\nHost: x\r\n" + b"X: 1\r\n" * 4000, 431),
    "an endless target": (b"GET /" + b"a" * 10_000, 431),
    "a body too large": (post("Content-Length: 100001"), 413),
    "chunks too large": (post("Transfer-Encoding: chunked", "186a1\r\n" + "a" * 100_001 + "\r\n0\r\n\r\n"), 413),
    "no JSON": (post("Content-Length: 3\r\nConnection: close", "{]}"), 400),
    "deep JSON": (post("Content-Length: 60000\r\nConnection: close", "[" * 60_000), 400),
    "JSON that is no text": (post("Content-Length: 4\r\nConnection: close", '"\xff\xfe"'), 400),
}
LATE = {
    "a head that does not end": b"GET / HTTP/1.1\r\nHost: x\r\n",
    "a body that does not come": post("Content-Length: 10", "{"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_request_is_refused_with_a_type_and_sends_the_engine_nothing(
    pair: tuple[EchoEngine, Guarded], name: str
) -> None:
    engine, guard = pair
    engine.seen.clear()
    sent, status = HOSTILE[name]
    if status == 200:  # obsolete folding is one header's value (RFC 9112, 5.2), and never a second header
        sent = sent.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1)
        assert raw(guard.port, sent).startswith(b"HTTP/1.1 200")
        assert engine.seen[0].header("transfer-encoding") is None
        return
    found, code = refusal(raw(guard.port, sent))
    assert (found, engine.seen) == (status, [])
    assert code.split("-")[0] in ("request", "method"), code


@pytest.mark.parametrize("name", LATE)
def test_a_request_that_does_not_come_is_refused_too(hasty: tuple[EchoEngine, Guarded], name: str) -> None:
    engine, guard = hasty
    assert refusal(raw(guard.port, LATE[name])) == (408, "request-too-slow")
    assert engine.seen == []


def test_what_is_refused_unread_is_told_in_the_log_and_counted(
    pair: tuple[EchoEngine, Guarded], hasty: tuple[EchoEngine, Guarded]
) -> None:
    for (_engine, guard), sent, code in (
        (pair, HOSTILE["no HTTP"][0], "request-malformed"),
        (pair, HOSTILE["endless headers"][0], "request-head-too-large"),
        (pair, HOSTILE["no JSON"][0], "request-not-json"),
        (hasty, LATE["a head that does not end"], "request-too-slow"),
    ):
        raw(guard.port, sent)
        wait_for(lambda guard=guard, code=code: any(f"code={code} " in line for line in guard.lines))
        page = httpx.get(f"http://127.0.0.1:{guard.admin_port}/metrics", timeout=60).text
        assert f'archon_guard_refusals_total{{class="none",code="{code}"}}' in page
        assert not any("aaaa" in line for line in guard.lines)


def test_the_rest_of_a_refused_request_is_never_read_as_another(pair: tuple[EchoEngine, Guarded]) -> None:
    engine, guard = pair
    engine.seen.clear()
    for sent, status in HOSTILE.values():
        if status != 200 and SMUGGLED.encode() in sent:
            assert len(re.findall(rb"HTTP/1.1 \d", raw(guard.port, sent + SMUGGLED.encode()))) == 1
    assert engine.seen == []


def test_a_large_refused_body_does_not_swallow_the_refusal(pair: tuple[EchoEngine, Guarded]) -> None:
    _engine, guard = pair
    for _ in range(5):
        answer = httpx.post(f"{guard.url}/v1/chat/completions", content=b"x" * 2_000_000, timeout=60)
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "request-too-large")


def test_nobody_is_told_to_continue_who_is_refused(pair: tuple[EchoEngine, Guarded]) -> None:
    _engine, guard = pair
    got = raw(guard.port, post("Content-Length: 100001\r\nExpect: 100-continue"))
    assert refusal(got) == (413, "request-too-large")
    taken = raw(guard.port, post("Content-Length: 2\r\nExpect: 100-continue\r\nConnection: close", "{}"))
    assert taken.startswith(b"HTTP/1.1 100")


def test_as_many_files_may_be_open_as_connections_need() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (300, hard))
        allow_files(10)
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (300, hard), "enough already"
        allow_files(50)
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (406, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextmanager
def slow_ones(guard: Guarded) -> Iterator[list[socket.socket]]:
    """As many as may be connected at once, none of whom says what it wants."""
    with ExitStack() as clients:
        found = []
        for _ in range(TIGHT.connections):
            found.append(clients.enter_context(socket.create_connection(("127.0.0.1", guard.port))))
            found[-1].sendall(b"GET / HT")
        yield found


def test_more_connections_than_may_be_are_refused() -> None:
    with echo_engine() as (_engine, port), guarded(port, limits=TIGHT) as guard, slow_ones(guard):
        assert refusal(raw(guard.port, b"")) == (503, "guard-full")


def test_slow_connections_do_not_keep_others_out() -> None:
    asks = b"GET /slots HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    with echo_engine() as (_engine, port), guarded(port, limits=HASTY) as guard, slow_ones(guard) as slow:

        def trickle_and_ask() -> bool:
            for each in slow:
                with suppress(OSError):
                    each.send(b"T")
            return raw(guard.port, asks).startswith(b"HTTP/1.1 200")

        wait_for(trickle_and_ask)  # they trickle, and are ended all the same
        assert refusal(slow[0].recv(65536)) == (408, "request-too-slow")


def test_a_client_that_does_not_read_is_cut_off_and_so_is_its_request(hasty: tuple[EchoEngine, Guarded]) -> None:
    engine, guard = hasty
    engine.seen.clear()
    body = json.dumps({"messages": [{"content": "x"}], "stream": True, "simulate": {"pieces": 100_000, "size": 2000}})
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.connect(("127.0.0.1", guard.port))
        sock.sendall(post(f"Content-Length: {len(body)}", body))
        wait_for(lambda: any(seen.ended == "client-gone" for seen in engine.seen))


def test_one_client_has_only_so_many_requests_open() -> None:
    limits = Limits(per_client=3)
    body = json.dumps({"messages": [{"content": "x"}], "simulate": {"wait_s": 60}})
    sent = post(f"Content-Length: {len(body)}\r\nConnection: close", body)
    with echo_engine() as (engine, port), guarded(port, limits=limits) as guard:
        with ExitStack() as clients:
            for _ in range(limits.per_client):
                sock = clients.enter_context(socket.create_connection(("127.0.0.1", guard.port)))
                sock.sendall(sent)
            wait_for(lambda: sum("completions " in seen.line for seen in engine.seen) == limits.per_client)
            answer = httpx.get(f"{guard.url}/v1/models", timeout=60)
            assert (answer.status_code, answer.json()["error"]["code"]) == (429, "client-busy")
            assert answer.headers["retry-after"] == "1"
        wait_for(lambda: httpx.get(f"{guard.url}/v1/models", timeout=60).status_code == 200)
