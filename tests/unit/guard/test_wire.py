"""How an engine's answer is framed: read as h11 reads it whatever pieces it comes in, and held within bounds."""

from __future__ import annotations

import asyncio
import gc
import itertools
import weakref
from dataclasses import dataclass, field

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from archonctl.guard.wire import MOST_HELD_BYTES, NotHttp, Torn, Wire

HEAD_BYTES = 8 << 10


class Line(asyncio.Transport):
    """Counts what matters of a transport."""

    def __init__(self) -> None:
        super().__init__()
        self.paused = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        pass

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False


@dataclass
class Read:
    """What a reader made of an answer. ``end``: whole, torn (broke off after its head), none."""

    end: str = "none"
    status: int = 0
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    body: bytes = b""


async def by_wire(pieces: list[bytes], *, without_body: bool = False, most_held: int = MOST_HELD_BYTES) -> Read:
    """As the guard reads it: the engine sends while it may, closes, and the reader takes what is there."""
    wire, line, found = Wire(HEAD_BYTES), Line(), Read()
    wire.connection_made(line)
    wire.send(b"", without_body=without_body)

    async def take() -> None:
        try:
            await wire.head(5.0)
            found.end, found.status, found.headers = "torn", wire.status, wire.headers
            while piece := await wire.piece(5.0):
                found.body += piece
            found.end = "whole"
        except (Torn, NotHttp):
            pass

    taking = asyncio.ensure_future(take())
    for piece in pieces:
        while line.paused and not taking.done():
            await asyncio.sleep(0)
        if not taking.done():
            wire.data_received(piece)
            assert wire._held_bytes <= most_held + len(piece)
    while line.paused and not taking.done():
        await asyncio.sleep(0)
    wire.connection_lost(None)
    await taking
    return found


def by_h11(sent: bytes, *, without_body: bool = False) -> Read:
    client, found, closed = h11.Connection(h11.CLIENT), Read(), False
    client.send(h11.Request(method="HEAD" if without_body else "GET", target="/", headers=[("Host", "x")]))
    client.send(h11.EndOfMessage())
    client.receive_data(sent)
    try:
        while True:
            event = client.next_event()
            if event is h11.NEED_DATA:
                if closed:
                    return found
                client.receive_data(b"")
                closed = True
            elif isinstance(event, h11.Response):
                found.end, found.status, found.headers = "torn", event.status_code, list(event.headers)
            elif isinstance(event, h11.Data):
                found.body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                found.end = "whole"
                return found
            elif not isinstance(event, h11.InformationalResponse):
                return found
    except h11.RemoteProtocolError:
        return found


BODIES = st.sampled_from(
    (b"", b"a", b"\r\n\r\n", b"0\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n", bytes(range(256)), b"z" * 9000)
)
FIRST = (b"", b"", b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Hints\r\nLink: x\r\nContent-Length: 3\r\n\r\n")
AFTER = (b"", b"", b"garbage", b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nq", b"\r\n")
GOOD = ("length", "chunks", "until the end")
FRAMINGS = (*GOOD, *GOOD, *GOOD, "both", "two lengths", "packed chunks", "no number", "too short")
OTHERS = (
    b"X: y", b"X-Space:  a b \t ", b"Connection: close", b"Connection: upgrade", b"Upgrade: websocket", b"X-Empty:",
    b"X-High: \xff\xfe", b"X-Tab: a\tb", b"X-Folded: a\r\n b", b"X-Zero: a\x00b",
)  # fmt: skip


@st.composite
def answers(draw: st.DrawFn) -> bytes:
    """An answer as an engine sends it: well, badly, or more than was asked for."""
    body, framing = draw(BODIES), draw(st.sampled_from(FRAMINGS))
    status = draw(st.sampled_from((*[200] * 6, 204, 304, 404, 599, 600, 99)))
    headers = draw(st.lists(st.sampled_from(OTHERS), max_size=2))
    if framing in ("length", "both", "two lengths", "too short"):
        headers += [b"Content-Length: %d " % (len(body) + (framing == "too short"))] * (1 + (framing == "two lengths"))
    if framing == "no number":
        headers.append(draw(st.sampled_from((b"Content-Length: x", b"Content-Length: -1", b"Content-Length: 5, 5"))))
    if framing in ("chunks", "both", "packed chunks"):
        headers.append(b"Transfer-Encoding: " + (b"gzip, chunked" if framing == "packed chunks" else b" Chunked "))
        cut = draw(st.integers(0, len(body)))
        ends = (b"0\r\n\r\n", b"0\r\nX-Trailer: 1\r\n\r\n", b"0;a=b\r\n\r\n", b"0\r\n", b"g\r\n", b"F" * 17 + b"\r\n")
        chunks = [b"%x;e\r\n%s\r\n" % (len(part), part) for part in (body[:cut], body[cut:]) if part]
        body = b"".join(chunks) + draw(st.sampled_from(ends))
    version = draw(st.sampled_from((*[b"1.1"] * 6, b"1.0", b"2.0")))
    head = b"\r\n".join([b"HTTP/%s %03d OK" % (version, status), *draw(st.permutations(headers))])
    sent = draw(st.sampled_from(FIRST)) + head + b"\r\n\r\n" + body + draw(st.sampled_from(AFTER))
    return sent[: draw(st.integers(0, len(sent)))] if draw(st.integers(0, 9)) == 0 else sent


@given(answers(), st.booleans(), st.lists(st.integers(0, 12_000), max_size=6))
def test_an_answer_is_read_as_h11_reads_it_or_refused_whatever_pieces_it_comes_in(
    sent: bytes, without_body: bool, cuts: list[int]
) -> None:
    at = sorted({0, len(sent), *(cut for cut in cuts if cut < len(sent))})
    pieces = [sent[a:b] for a, b in itertools.pairwise(at)]
    once = asyncio.run(by_wire([sent], without_body=without_body))
    other = by_h11(sent, without_body=without_body)
    assert asyncio.run(by_wire(pieces, without_body=without_body)) == once
    if once.end == "whole":
        assert (once.end, once.status, once.body) == (other.end, other.status, other.body)
        wanted = [(name, value) for name, value in other.headers if name != b"transfer-encoding"]
        assert [(n.lower(), v) for n, v in once.headers if n.lower() != b"transfer-encoding"] == wanted
        h11.Response(status_code=once.status, headers=once.headers)  # a server can say it to a client


@pytest.mark.parametrize("status", [99, 600, 999])
def test_what_follows_a_head_that_is_refused_is_not_read_as_the_answer(status: int) -> None:
    sent = b"HTTP/1.1 %03d No\r\nContent-Length: 0\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nq" % status
    assert asyncio.run(by_wire([sent])).end == "none"


OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
ENDLESS = {
    "a head": (OK, b"X: y\r\n", "none"),
    "a header": (OK + b"X: ", b"y" * 100, "none"),
    "provisional answers": (b"", b"HTTP/1.1 102 Wait\r\n\r\n", "none"),
    "trailers": (CHUNKED + b"1\r\na\r\n0\r\n", b"X: y\r\n", "torn"),
    "a trailer": (CHUNKED + b"0\r\nX: ", b"y" * 100, "torn"),
    "the size of a chunk": (CHUNKED + b"1\r\na\r\n1;", b"e=f;", "torn"),
}


@pytest.mark.parametrize("name", ENDLESS)
def test_what_never_ends_and_is_no_body_is_given_up(name: str) -> None:
    begin, more, end = ENDLESS[name]
    assert asyncio.run(by_wire([begin, *[more] * (2 * HEAD_BYTES // len(more)), b"\r\n\r\n" * 3])).end == end


@pytest.mark.parametrize("framing", ["length", "chunks", "until the end"])
def test_a_reader_that_is_slow_holds_the_engine_up_and_loses_nothing(framing: str) -> None:
    parts = [bytes([number]) * 50_000 for number in range(100)]
    body = b"".join(parts)
    if framing == "chunks":
        pieces = [CHUNKED, *(b"%x\r\n%s\r\n" % (len(part), part) for part in parts), b"0\r\n\r\n"]
    else:
        length = b"Content-Length: %d\r\n" % len(body) if framing == "length" else b""
        pieces = [OK + length + b"\r\n", *parts]
    found = asyncio.run(by_wire(pieces))
    assert (found.end, found.body == body) == ("whole", True)


def test_a_connection_that_has_ended_waits_for_no_collector() -> None:
    async def test() -> Wire | None:
        wire = Wire(HEAD_BYTES)
        wire.connection_made(Line())
        wire.send(b"", without_body=False)
        wire.data_received(OK + b"Content-Length: 1\r\n\r\na")
        wire.connection_lost(None)
        left = weakref.ref(wire)
        del wire
        return left()

    gc.disable()
    try:
        assert asyncio.run(test()) is None
    finally:
        gc.enable()
