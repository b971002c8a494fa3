"""Any bytes on the wire, cut anywhere, end in an answer or a fault: no other exception, no hang, bounded memory."""

from __future__ import annotations

import asyncio
import json
import tracemalloc

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from archonctl.probe.address import Addresses
from archonctl.probe.client import Answer, Http
from archonctl.probe.faults import Fault
from archonctl.probe.session import Session
from archonctl.probe.shape import Shape
from archonctl.probe.stream import Seen, run_stream
from support.probing import API, ROOMY, endpoint

MOST_BYTES = 4096
TOTAL_S = 30.0

STATUS = st.sampled_from(
    [b"HTTP/1.1 200 OK", b"HTTP/1.0 200", b"HTTP/1.1 503 No", b"HTTP/1.1 100 Continue", b"HTTP/2 200"]
)
NAMES = st.sampled_from(
    [b"Content-Type", b"Content-Length", b"Transfer-Encoding", b"Content-Encoding", b"Location", b"Connection", b"X"]
)
VALUES = st.sampled_from(
    [b"text/event-stream", b"application/json; charset=utf-8", b"chunked", b"gzip", b"7", b"-1", b"9" * 30, b"close"]
) | st.binary(max_size=12)
HEADS = st.builds(
    lambda status, headers: b"\r\n".join([status, *(name + b": " + value for name, value in headers)]) + b"\r\n\r\n",
    STATUS | st.binary(max_size=20),
    st.lists(st.tuples(NAMES, VALUES), max_size=5),
)
NUMBERS = st.integers() | st.floats() | st.sampled_from([10**400, -(10**400), 2**63, True])
EVENTS = st.builds(
    lambda prompt, done, text, reason: (
        b"data: "
        + json.dumps(
            {
                "choices": [{"text": text, "finish_reason": reason}],
                "usage": {"prompt_tokens": prompt, "completion_tokens": done},
                "timings": {"draft_n": done, "cache_n": prompt},
                "prompt_progress": {"processed": done},
            }
        ).encode()
        + b"\n\n"
    ),
    NUMBERS,
    NUMBERS,
    st.none() | st.text(max_size=5),
    st.none() | st.sampled_from(["", "length", "stop"]),
)
BODIES = st.lists(EVENTS | st.binary(max_size=30) | st.just(b"data: [DONE]\n\n"), max_size=6).map(b"".join)
STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
quick = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


async def _served(wire: bytes, cut: int, work: str) -> Answer | Seen | Fault:
    """What the client makes of ``wire``, sent in pieces of ``cut`` bytes."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            for start in range(0, len(wire), cut):
                writer.write(wire[start : start + cut])
                await writer.drain()
                await asyncio.sleep(0)
        except OSError:
            pass  # the client has seen enough
        finally:
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    base = f"http://127.0.0.1:{port}"
    try:
        async with asyncio.timeout(2 * TOTAL_S), Http(Addresses(base, base), "", ROOMY) as http:
            if work == "whole":
                return await http.get("/x", TOTAL_S, MOST_BYTES)
            session = Session(http, endpoint(f"127.0.0.1:{port}", 2, 256), API, None, ROOMY, lambda _: None)
            return await run_stream(session, Shape.first(API, "m"), "a b", 8, lambda _change, _seen: None)
    except Fault as fault:
        return fault
    finally:
        server.close()
        await server.wait_closed()


@given(HEADS | st.binary(max_size=200), BODIES, st.integers(1, 64))
@example(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"ffffffffffffffffffff\r\n", 64)
@example(b"HTTP/1.1 200 OK\r\nContent-Type: " + b"\xff" * 50 + b"\r\n\r\n", b"{}", 7)
@quick
def test_any_head_and_body_are_an_answer_or_a_fault(head: bytes, body: bytes, cut: int) -> None:
    found = asyncio.run(_served(head + body, cut, "whole"))
    assert isinstance(found, Answer | Fault)
    assert not isinstance(found, Answer) or len(found.body) <= MOST_BYTES


@given(BODIES, st.integers(1, 200))
@quick
def test_any_stream_is_read_or_a_fault(body: bytes, cut: int) -> None:
    found = asyncio.run(_served(STREAM_HEAD + body, cut, "stream"))
    assert isinstance(found, Seen | Fault)
    if isinstance(found, Seen):
        assert found.finished
        assert found.tokens / 2.0 >= 0  # a count that arithmetic can take


def test_an_endless_head_or_stream_is_left_in_bounded_memory() -> None:
    asyncio.run(_served(STREAM_HEAD, 1, "stream"))  # what is imported at first use is not counted
    for wire in (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 3_000_000, STREAM_HEAD + b"data: " + b"x" * 20_000_000):
        tracemalloc.start()
        try:
            found = asyncio.run(_served(wire, 65_536, "stream"))
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert isinstance(found, Fault)
        assert peak < 12_000_000, f"{peak:,} bytes"
