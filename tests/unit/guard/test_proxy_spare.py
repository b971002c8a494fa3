"""The connection that is opened before its request: one, for one request, for a moment, and never in the way."""

from __future__ import annotations

import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import httpx
import pytest

from archonctl.guard.limits import Limits
from support.engines import wait_for
from support.guarding import guarded

CHAT = "/v1/chat/completions"
LIMITS = Limits(drain_s=10.0)
ANSWER = b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 16\r\n\r\n{"answer":"%03d"}'


class Listener:
    """A server of one's own making: what it does to the Nth connection is said by ``serve``."""

    def __init__(self, serve: Callable[[socket.socket, int], None]) -> None:
        self._serve = serve
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self.open: set[int] = set()
        self.accepted = 0
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        with suppress(OSError):
            while True:
                line, _ = self._socket.accept()
                self.accepted += 1
                threading.Thread(target=self._one, args=(line, self.accepted), daemon=True).start()

    def _one(self, line: socket.socket, number: int) -> None:
        self.open.add(number)
        with line, suppress(OSError):
            self._serve(line, number)
        self.open.discard(number)

    def close(self) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # a close alone wakes nobody who accepts
        self._socket.close()


@contextmanager
def listener(serve: Callable[[socket.socket, int], None]) -> Iterator[Listener]:
    found = Listener(serve)
    try:
        yield found
    finally:
        found.close()


def read_request(line: socket.socket) -> bytes:
    """One request, to the end of its body; empty if the other side closed first."""
    text = b""
    while b"\r\n\r\n" not in text:
        if not (piece := line.recv(65536)):
            return b""
        text += piece
    head, _, body = text.partition(b"\r\n\r\n")
    length = next((int(r.split(b":")[1]) for r in head.lower().split(b"\r\n") if r.startswith(b"content-length")), 0)
    while len(body) < length:
        body += line.recv(65536)
    return head + body


def ask(url: str) -> httpx.Response:
    return httpx.post(url + CHAT, json={"messages": [{"role": "user", "content": "x"}], "max_tokens": 1}, timeout=60)


def test_what_an_engine_says_after_its_answer_reaches_nobody() -> None:
    def serve(line: socket.socket, number: int) -> None:
        if request := read_request(line):
            line.sendall(ANSWER % number + (ANSWER % 999 if CHAT.encode() in request else b""))
            line.recv(1)

    with listener(serve) as engine, guarded(engine.port, limits=LIMITS) as guard:
        answers = [ask(guard.url) for _ in range(20)]
    assert {answer.status_code for answer in answers} <= {200, 502}
    told = [answer.json()["answer"] for answer in answers if answer.status_code == 200]
    assert len(set(told)) == len(told)
    assert "999" not in told


def test_what_an_engine_says_before_it_was_asked_is_no_answer() -> None:
    def serve(line: socket.socket, number: int) -> None:
        line.sendall(ANSWER % 999)
        read_request(line)
        line.sendall(ANSWER % number)

    with listener(serve) as engine, guarded(engine.port, limits=LIMITS) as guard:
        for _ in range(10):
            answer = ask(guard.url)
            assert answer.status_code in {200, 502}


def test_a_connection_that_the_engine_closed_meanwhile_costs_nobody_an_answer() -> None:
    doomed: set[int] = set()

    def serve(line: socket.socket, number: int) -> None:
        while not select.select([line], [], [], 0.005)[0]:
            if number in doomed:  # an engine without patience
                return
        if read_request(line):
            line.sendall(ANSWER % (number % 1000))

    with listener(serve) as engine, guarded(engine.port, limits=LIMITS) as guard:
        for _ in range(10):
            answer = ask(guard.url)
            assert answer.status_code == 200, answer.text
            doomed.update(range(engine.accepted + 2))
            wait_for(lambda: not engine.open & doomed)  # one that is closed as its request is sent is an engine lost
            doomed.clear()


def test_an_engine_is_left_alone_soon_after_the_last_request() -> None:
    def serve(line: socket.socket, number: int) -> None:
        if read_request(line):
            line.sendall(ANSWER % (number % 1000))
            line.recv(1)
        line.recv(1)

    with listener(serve) as engine, guarded(engine.port, limits=LIMITS) as guard:
        for _ in range(30):
            ask(guard.url)
            wait_for(lambda: len(engine.open) <= 3)
        wait_for(lambda: not engine.open)
        before = engine.accepted
        time.sleep(0.3)
        assert engine.accepted <= before + 1  # looks of the guard's own


@pytest.mark.parametrize("count", [1, 40])
def test_no_two_requests_share_a_connection(count: int) -> None:
    served: dict[int, int] = {}

    def serve(line: socket.socket, number: int) -> None:
        while read_request(line):
            served[number] = served.get(number, 0) + 1
            line.sendall(ANSWER % (number % 1000))

    with listener(serve) as engine, guarded(engine.port, limits=LIMITS) as guard:
        threads = [threading.Thread(target=ask, args=(guard.url,)) for _ in range(count)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        ask(guard.url)
    assert set(served.values()) == {1}
