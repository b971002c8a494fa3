"""What goes through the guard arrives as it was sent, both ways."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import httpx
import pytest

from archonctl.guard.gathered import MOST_BYTES, Gathered
from support.echo_engine import EchoEngine, echo_engine, expected_text
from support.guarding import Guarded, guarded, raw

CHAT = "/v1/chat/completions"


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[EchoEngine, Guarded]]:
    with echo_engine() as (engine, port), guarded(port) as guard:
        yield engine, guard


def chat(prompt: str, stream: bool = False, **simulate: object) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": prompt}], "stream": stream, "simulate": simulate}


def told(lines: bytes) -> str:
    events = [json.loads(line[6:]) for line in lines.split(b"\n\n") if line.startswith(b"data: {")]
    return "".join(event["choices"][0]["delta"]["content"] for event in events)


@pytest.mark.parametrize(
    "target",
    [
        "/v1/models",
        "/props?x=1&y=%2F%00",
        "/a/../b/./c",
        "//twice//",
        "/%2e%2e/%C3%A9",
        "/slots?fail_on_no_slot=1",
        "/",
    ],
)
def test_a_path_reaches_the_engine_as_it_was_written(pair: tuple[EchoEngine, Guarded], target: str) -> None:
    engine, guard = pair
    raw(guard.port, f"GET {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    assert engine.seen[-1].line == f"GET {target} HTTP/1.1"


def test_an_absolute_target_is_asked_of_the_engine_alone(pair: tuple[EchoEngine, Guarded]) -> None:
    engine, guard = pair
    raw(guard.port, b"GET http://elsewhere.example/v1/models?a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert engine.seen[-1].line == "GET /v1/models?a HTTP/1.1"


def test_what_is_written_together_is_sent_together_in_its_order_and_before_the_end() -> None:
    async def test() -> list[object]:
        told: list[object] = []

        class Transport(asyncio.Transport):
            def write(self, data: bytes) -> None:
                told.append(data)

            def is_closing(self) -> bool:
                return "closed" in told

            def close(self) -> None:
                told.append("closed")

        gathered = Gathered(Transport(), asyncio.get_running_loop())
        for piece in (b"a", b"", b"b"):
            gathered.write(piece)
        await asyncio.sleep(0)
        gathered.write(b"c")
        gathered.write(b"d" * MOST_BYTES)
        gathered.write(b"e")
        gathered.close()
        gathered.write(b"for nobody")  # where uvloop raises
        await asyncio.sleep(0)
        return told

    assert asyncio.run(test()) == [b"ab", b"c" + b"d" * MOST_BYTES, b"e", "closed"]


def test_no_answer_outlives_its_client_at_the_engine(pair: tuple[EchoEngine, Guarded]) -> None:
    engine, guard = pair
    httpx.post(guard.url + CHAT, json=chat("x"), headers={"X-Conversation-Id": "one"}, timeout=60)
    assert engine.seen[-1].header("x-conversation-id") is None


def test_headers_for_the_other_end_pass_and_those_of_one_connection_do_not(pair: tuple[EchoEngine, Guarded]) -> None:
    engine, guard = pair
    head = (
        "GET /v1/models HTTP/1.1\r\nHost: x\r\nX-One: 1\r\nX-Two: zwei \xe2\x82\xac\r\nKeep-Alive: 5\r\n"
        "TE: trailers\r\nProxy-Authorization: Basic x\r\nX-Mine: hop\r\nUpgrade: h2c\r\n"
        "Connection: close, X-Mine, Upgrade\r\n\r\n"
    )
    raw(guard.port, head.encode("latin-1"))
    seen = engine.seen[-1]
    assert (seen.header("x-one"), seen.header("x-two")) == ("1", "zwei \xe2\x82\xac")
    for name in ("keep-alive", "te", "proxy-authorization", "x-mine", "upgrade", "user-agent", "accept-encoding"):
        assert seen.header(name) is None, name
    assert seen.header("host") == f"127.0.0.1:{seen.header('host').rpartition(':')[2]}"  # type: ignore[union-attr]


def test_bodies_pass_byte_by_byte_whatever_they_are(pair: tuple[EchoEngine, Guarded]) -> None:
    engine, guard = pair
    body = bytes(range(256)) * 300
    answer = httpx.post(f"{guard.url}/v1/audio/transcriptions", content=body, timeout=60)
    assert (engine.seen[-1].body, answer.status_code) == (body, 400)


def test_a_chunked_request_is_framed_anew(pair: tuple[EchoEngine, Guarded]) -> None:
    engine, guard = pair
    sent = b"POST /tokenize HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    sent += b"3;x=1\r\n{}\n\r\n0\r\nT: 1\r\n\r\n"
    assert raw(guard.port, sent).startswith(b"HTTP/1.1 200")
    seen = engine.seen[-1]
    assert (seen.body, seen.header("content-length"), seen.header("transfer-encoding")) == (b"{}\n", "3", None)


def test_one_connection_serves_many_requests_pipelined_ones_too(pair: tuple[EchoEngine, Guarded]) -> None:
    _engine, guard = pair
    one = b"GET /slots HTTP/1.1\r\nHost: x\r\n\r\n"
    got = raw(guard.port, one * 5 + one.replace(b"Host: x", b"Host: x\r\nConnection: close"))
    assert got.count(b"HTTP/1.1 200") == 6


def test_head_and_options_have_the_engines_answer(pair: tuple[EchoEngine, Guarded]) -> None:
    engine, guard = pair
    got = raw(guard.port, b"HEAD /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert b"1234" in got
    assert b"X-Engine: echo" in got
    assert got.endswith(b"\r\n\r\n")
    assert httpx.options(f"{guard.url}{CHAT}", timeout=60).status_code == 200
    assert engine.seen[-1].line == f"OPTIONS {CHAT} HTTP/1.1"


def test_a_client_of_http_1_0_gets_no_chunks(pair: tuple[EchoEngine, Guarded]) -> None:
    _engine, guard = pair
    body = json.dumps(chat("old", True, pieces=3)).encode()
    sent = b"POST %s HTTP/1.0\r\nContent-Length: %d\r\n\r\n%s" % (CHAT.encode(), len(body), body)
    head, _, rest = raw(guard.port, sent).partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in head.lower()
    assert told(rest) == expected_text("old", 3, 40)


def test_a_stream_arrives_whole_in_order_and_as_it_comes(pair: tuple[EchoEngine, Guarded]) -> None:
    _engine, guard = pair
    body = chat("hello", True, pieces=200, size=500)
    with httpx.stream("POST", guard.url + CHAT, json=body, timeout=60) as answer:
        got = b"".join(answer.iter_raw())
    assert told(got) == expected_text("hello", 200, 500)
    assert got.endswith(b"data: [DONE]\n\n")
    slow = chat("slow", True, pieces=3, gap_s=60)
    with httpx.stream("POST", guard.url + CHAT, json=slow, timeout=60) as answer:
        first = next(answer.iter_raw())
    assert told(first) == expected_text("slow", 1, 40), "an event was kept back until the next"


@pytest.mark.parametrize(
    "sent",
    [
        b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 3\r\n\r\nabc",
        b"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\nabc",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 3\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\nabc",
    ],
    ids=["chunked", "to-the-end", "length", "http-1.0", "after-100", "half-an-event"],
)
def test_every_way_to_frame_an_answer_is_read(pair: tuple[EchoEngine, Guarded], sent: bytes) -> None:
    _engine, guard = pair
    answer = httpx.post(guard.url + CHAT, json=chat("x", raw=sent.decode("latin-1")), timeout=60)
    assert (answer.status_code, answer.content) == (200, b"abc")


def test_a_packed_answer_is_passed_on_packed(pair: tuple[EchoEngine, Guarded]) -> None:
    _engine, guard = pair
    head = "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 5\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2"
    sent = head + "\r\n\r\n\x1f\x8bxyz"
    with httpx.stream("POST", guard.url + CHAT, json=chat("x", raw=sent), timeout=60) as answer:
        assert b"".join(answer.iter_raw()) == b"\x1f\x8bxyz"
        assert answer.headers.get_list("set-cookie") == ["a=1", "b=2"]


def test_the_guards_own_pages_are_elsewhere(pair: tuple[EchoEngine, Guarded]) -> None:
    engine, guard = pair
    for path in ("/health", "/metrics"):
        httpx.get(guard.url + path, timeout=60)
        assert engine.seen[-1].line == f"GET {path} HTTP/1.1"
    admin = f"http://127.0.0.1:{guard.admin_port}"
    assert httpx.get(f"{admin}/health", timeout=60).json()["status"] == "ok"
    assert "archon_guard_retries_total" in httpx.get(f"{admin}/metrics", timeout=60).text
    assert httpx.get(f"{admin}/v1/models", timeout=60).status_code == 404
