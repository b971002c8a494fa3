"""An engine that is away, dies, hangs or runs out of memory: typed errors, one more try, and nobody else's answer."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from archonctl.guard.events import HELD_BYTES, Events
from archonctl.guard.limits import Limits
from archonctl.guard.retry import error_message, table
from archonctl.guard.values import Capacity
from support.echo_engine import EchoEngine, Seen, echo_engine, expected_text
from support.engines import wait_for
from support.guarding import Guarded, guarded

CHAT = "/v1/chat/completions"
USUAL = Limits(drain_s=10.0)
HASTY = Limits(wait_s=1.0, first_s=1.0, gap_s=1.0, drain_s=10.0)
"""Only for what shall be late: on a busy machine everybody may be."""
EXCEEDED = '{"error":{"code":500,"message":"Context size has been exceeded.","type":"server_error"}}'


def chat(prompt: str, stream: bool = False, **simulate: object) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": prompt}], "stream": stream, "simulate": simulate}


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[EchoEngine, Guarded]]:
    with echo_engine() as (engine, port), guarded(port, limits=USUAL) as guard:
        yield engine, guard


@pytest.fixture(scope="module")
def hasty() -> Iterator[tuple[EchoEngine, Guarded]]:
    with echo_engine() as (engine, port), guarded(port, limits=HASTY) as guard:
        yield engine, guard


def chats(engine: EchoEngine, prompt: str) -> list[Seen]:
    return [s for s in engine.seen if s.line.startswith(f"POST {CHAT} ") and prompt.encode() in s.body]


def retries(guard: Guarded) -> dict[str, float]:
    text = httpx.get(f"http://127.0.0.1:{guard.admin_port}/metrics", timeout=60).text
    rows = [line for line in text.splitlines() if line.startswith("archon_guard_retries_total{")]
    return {row.split('"')[1]: float(row.split()[-1]) for row in rows}


BROKEN = {
    "nothing": ("", 502, "engine-lost"),
    "half a head": ("HTTP/1.1 200 OK\r\nContent-Le", 502, "engine-lost"),
    "half a body": ("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", 502, "engine-lost"),
    "no HTTP": ("SSH-2.0-OpenSSH_9.2\r\n\r\n", 502, "engine-answer-invalid"),
    "two lengths": (
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 9\r\n\r\nabc",
        502,
        "engine-answer-invalid",
    ),
    "no number": ("HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\nabc", 502, "engine-answer-invalid"),
}


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize("stream", [False, True])
def test_a_broken_answer_is_a_typed_error(pair: tuple[EchoEngine, Guarded], name: str, stream: bool) -> None:
    _engine, guard = pair
    sent, status, code = BROKEN[name]
    answer = httpx.post(guard.url + CHAT, json=chat("x", stream, raw=sent), timeout=60)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)


def test_an_answer_with_length_and_chunks_is_not_passed_on_with_both(pair: tuple[EchoEngine, Guarded]) -> None:
    _engine, guard = pair
    sent = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
    answer = httpx.post(guard.url + CHAT, json=chat("x", raw=sent), timeout=60)
    assert answer.status_code == 502 or (answer.content, answer.headers.get("content-length")) == (b"abc", None)


def test_a_stream_that_breaks_off_ends_with_an_error_event_on_a_line_of_its_own(
    pair: tuple[EchoEngine, Guarded],
) -> None:
    _engine, guard = pair
    for sent in (
        {"die_after": 2, "pieces": 5},
        {"raw": "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
                "10\r\ndata: {\"a\": 1}\n\n\r\n9\r\ndata: {\"b\r\n"},
    ):  # fmt: skip
        answer = httpx.post(guard.url + CHAT, json=chat("x", True, **sent), timeout=60)
        events = answer.text.split("\n\n")
        assert answer.status_code == 200
        assert all(json.loads(event.removeprefix("data: ")) for event in events[:-1])
        assert json.loads(events[-2].removeprefix("data: "))["error"]["code"] == "engine-lost"


def test_bytes_that_break_off_break_off_for_the_client_too(pair: tuple[EchoEngine, Guarded]) -> None:
    _engine, guard = pair
    sent = "HTTP/1.1 200 OK\r\nContent-Type: audio/wav\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"
    with pytest.raises(httpx.RemoteProtocolError):
        httpx.post(guard.url + CHAT, json=chat("x", raw=sent), timeout=60)


def test_an_engine_that_says_nothing_is_given_up(hasty: tuple[EchoEngine, Guarded]) -> None:
    engine, guard = hasty
    answer = httpx.post(guard.url + CHAT, json=chat("silent", wait_s=30), timeout=60)
    assert (answer.status_code, answer.json()["error"]["code"]) == (504, "engine-silent")
    answer = httpx.post(guard.url + CHAT, json=chat("stuck", True, pieces=2, gap_s=30), timeout=60)
    assert answer.text.endswith('"code": "engine-silent"}}\n\n')
    wait_for(lambda: all(s.ended == "client-gone" for s in (*chats(engine, "silent"), *chats(engine, "stuck"))))


@pytest.mark.parametrize("simulate", [{"wait_s": 30}, {"pieces": 1000, "gap_s": 0.1}])
def test_a_client_that_goes_away_ends_its_request_at_the_engine(
    pair: tuple[EchoEngine, Guarded], simulate: dict[str, object]
) -> None:
    engine, guard = pair
    prompt = f"gone-{'wait_s' in simulate}"
    body = json.dumps(chat(prompt, True, **simulate)).encode()
    with socket.create_connection(("127.0.0.1", guard.port)) as sock:
        sock.sendall(b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (CHAT.encode(), len(body), body))
        wait_for(lambda: chats(engine, prompt))
    wait_for(lambda: chats(engine, prompt)[0].ended == "client-gone")
    wait_for(lambda: guard.admission.snapshot().in_flight == 0)


@pytest.mark.parametrize("simulate", [{"wait_s": 30}, {"pieces": 1000, "gap_s": 0.1}])
def test_what_a_client_held_that_left_is_given_to_nobody_before_the_engine_lets_go(simulate: dict[str, object]) -> None:
    with echo_engine() as (engine, port), guarded(port, capacity=Capacity(slots=1)) as guard:
        engine.notices_s = 0.5
        body = json.dumps(chat("left", True, **simulate)).encode()
        with socket.create_connection(("127.0.0.1", guard.port)) as sock:
            sock.sendall(
                b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (CHAT.encode(), len(body), body)
            )
            wait_for(lambda: chats(engine, "left"))
        with ThreadPoolExecutor(1) as pool:
            other = pool.submit(httpx.post, guard.url + CHAT, json=chat("other"), timeout=60)
            wait_for(lambda: chats(engine, "other"))
            assert chats(engine, "left")[0].ended == "client-gone"
            assert other.result().status_code == 200


def test_an_engine_that_never_lets_go_holds_nobody_up_for_ever() -> None:
    limits = Limits(let_go_s=0.2)
    with echo_engine() as (engine, port), guarded(port, capacity=Capacity(slots=1), limits=limits) as guard:
        engine.notices_s = 30
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(guard.url + CHAT, json=chat("left", wait_s=30), timeout=0.5)
        assert httpx.post(guard.url + CHAT, json=chat("other"), timeout=60).status_code == 200


def test_one_more_try_after_memory_ran_out_and_idle_slots_are_trimmed_before(pair: tuple[EchoEngine, Guarded]) -> None:
    engine, guard = pair
    engine.slots = [{"id": 0, "is_processing": True}, {"id": 1, "is_processing": False}]
    before = retries(guard)
    answer = httpx.post(guard.url + CHAT, json=chat("again", refuse=[1, 500, EXCEEDED]), timeout=60)
    assert answer.json()["choices"][0]["message"]["content"] == expected_text("again", 1, 40)
    lines = [s.line.rpartition(" ")[0] for s in engine.seen]
    assert lines[-4:] == [f"POST {CHAT}", "GET /slots", "POST /slots/1?action=erase", f"POST {CHAT}"]
    assert chats(engine, "again")[0].body == chats(engine, "again")[1].body
    once = httpx.post(guard.url + CHAT, json=chat("twice", refuse=[9, 500, EXCEEDED]), timeout=60)
    assert (once.status_code, once.text, len(chats(engine, "twice"))) == (500, EXCEEDED, 2)
    after = retries(guard)
    assert {key: after[key] - before[key] for key in after} == {"attempted": 2, "succeeded": 1, "failed": 1}


def test_an_error_as_the_first_event_of_a_stream_is_tried_again_and_a_later_one_never(
    pair: tuple[EchoEngine, Guarded],
) -> None:
    engine, guard = pair
    head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
    for first, tries in ((f"data: {EXCEEDED}\n\n", 2), (f'data: {{"choices":[]}}\n\ndata: {EXCEEDED}\n\n', 1)):
        prompt = f"event-{tries}"
        answer = httpx.post(guard.url + CHAT, json=chat(prompt, True, raw=head + first), timeout=60)
        assert (answer.text, len(chats(engine, prompt))) == (first, tries)


@pytest.mark.parametrize(
    ("status", "body"),
    [(500, '{"error":{"message":"Compute error."}}'), (400, EXCEEDED), (503, "busy"), (500, ""), (429, '{"error":{}}')],
)
def test_other_refusals_are_passed_on_as_they_are(pair: tuple[EchoEngine, Guarded], status: int, body: str) -> None:
    engine, guard = pair
    prompt = f"refused-{status}-{len(body)}"
    answer = httpx.post(guard.url + CHAT, json=chat(prompt, refuse=[9, status, body]), timeout=60)
    assert (answer.status_code, answer.text, len(chats(engine, prompt))) == (status, body, 1)


def test_an_engine_that_loads_is_waited_for_and_its_health_is_told_as_it_is(
    pair: tuple[EchoEngine, Guarded], hasty: tuple[EchoEngine, Guarded]
) -> None:
    engine, guard = pair
    loading = '{"error":{"message":"Loading model","type":"unavailable_error","code":503}}'
    answer = httpx.post(guard.url + CHAT, json=chat("loads", refuse=[2, 503, loading]), timeout=60)
    assert (answer.status_code, len(chats(engine, "loads"))) == (200, 3)
    _engine, guard = hasty
    answer = httpx.post(guard.url + CHAT, json=chat("loads long", refuse=[99, 503, loading]), timeout=60)
    assert (answer.status_code, answer.text) == (503, loading)


def test_who_asks_while_the_engine_is_away_is_answered_once_it_is_back(free_port: int) -> None:
    with guarded(free_port, limits=Limits(wait_s=120)) as guard, ThreadPoolExecutor(8) as pool:
        away = httpx.get(f"{guard.url}/v1/models", timeout=60)
        assert (away.status_code, away.json()["error"]["code"]) == (503, "engine-away")
        assert away.headers["retry-after"] == "5"
        asked = [pool.submit(httpx.post, guard.url + CHAT, json=chat(f"c{n}"), timeout=120) for n in range(8)]
        time.sleep(0.5)
        with echo_engine(free_port):
            for number, each in enumerate(asked):
                text = each.result().json()["choices"][0]["message"]["content"]
                assert text == expected_text(f"c{number}", 1, 40)


def test_who_waited_for_an_engine_that_stays_away_is_told(free_port: int) -> None:
    with guarded(free_port, limits=HASTY) as guard:
        answer = httpx.post(guard.url + CHAT, json=chat("x"), timeout=60)
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "engine-away")


def test_a_stop_lets_running_answers_end_and_ends_the_rest_in_order() -> None:
    with (
        echo_engine() as (engine, port),
        guarded(port, limits=Limits(drain_s=5)) as guard,
        ThreadPoolExecutor(4) as pool,
    ):
        short = pool.submit(httpx.post, guard.url + CHAT, json=chat("short", True, pieces=5, gap_s=0.1), timeout=60)
        endless = pool.submit(
            httpx.post, guard.url + CHAT, json=chat("endless", True, pieces=1000, gap_s=0.1), timeout=60
        )
        queued = pool.submit(httpx.post, guard.url + CHAT, json=chat("queued", wait_s=60), timeout=60)
        wait_for(lambda: all(chats(engine, prompt) for prompt in ("short", "endless", "queued")))
        guard.stop()
        assert short.result().text.endswith("data: [DONE]\n\n")
        assert (
            json.loads(endless.result().text.split("\n\n")[-2].removeprefix("data: "))["error"]["code"]
            == "guard-stopping"
        )
        assert queued.result().json()["error"]["code"] == "guard-stopping"
        wait_for(lambda: chats(engine, "endless")[0].ended == "client-gone")


def test_no_answer_reaches_another_client_though_many_are_torn(pair: tuple[EchoEngine, Guarded]) -> None:
    _engine, guard = pair
    wrong: list[str] = []

    def client(number: int) -> None:
        with httpx.Client(timeout=120) as http:
            for turn in range(25):
                prompt, stream = f"client{number}turn{turn}", turn % 2 == 0
                simulate = {"pieces": 20, "size": 300} | ({"die_after": turn % 5} if turn % 3 == 0 else {})
                with http.stream("POST", guard.url + CHAT, json=chat(prompt, stream, **simulate)) as answer:
                    if turn % 4 == 1:
                        next(answer.iter_raw())
                        continue  # and leave in the middle
                    text = answer.read().decode()
                said = {
                    n for n in range(8) for t in range(25) if f"client{n}turn{t}#" in text and (n, t) != (number, turn)
                }
                if said or not ("error" in text or f"{prompt}#" in text):
                    wrong.append(f"{prompt}: {text[:200]}")

    threads = [threading.Thread(target=client, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(240)
    assert not wrong
    wait_for(lambda: guard.admission.snapshot().in_flight == 0)


def test_lines_of_the_log_hold_figures_and_no_content(pair: tuple[EchoEngine, Guarded]) -> None:
    _engine, guard = pair
    headers = {"Authorization": "Bearer sk-very-secret-key"}
    target = f"{CHAT}?api_key=sk-very-secret-key"
    httpx.post(guard.url + target, json=chat("my secret prompt"), headers=headers, timeout=60)
    wait_for(lambda: any("key-" in line for line in guard.lines))
    text = "\n".join(guard.lines)
    assert "secret" not in text
    line = next(line for line in guard.lines if "client=key-" in line)
    assert line.startswith(f"POST {CHAT} 200 client=key-")
    assert " end=passed " in line
    assert " tokens=<=" in line
    assert " in=" in line


@pytest.mark.parametrize("row", table().answers, ids=lambda row: f"{row.engine}-{row.kind}")
def test_each_row_reads_its_own_example_and_no_other_engines(row: object) -> None:
    from archonctl.guard.retry import Row

    assert isinstance(row, Row)
    assert row.source
    assert table().kind(row.engine, row.status, row.example.encode()) == row.kind
    assert table().kind(row.engine, 200, row.example.encode()) is None
    assert table().kind("other", row.status, row.example.encode()) is None


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_what_is_no_error_object_has_no_message(body: bytes) -> None:
    assert isinstance(error_message(body), str)


@settings(deadline=None)
@given(st.lists(st.sampled_from([b"data: a", b"\n", b"\r\n", b"\r", b"\n\n", b": ping", b"x" * 50])), st.data())
def test_events_are_passed_on_whole_and_nothing_is_lost(parts: list[bytes], data: st.DataObject) -> None:
    text = b"".join(parts)
    events, sent, at = Events(), b"", 0
    while at < len(text):
        size = data.draw(st.integers(1, 20))
        piece = events.feed(text[at : at + size])
        assert not piece or piece.endswith((b"\n\n", b"\r\n\r\n", b"\n\r\n", b"\r\r"))
        sent, at = sent + piece, at + size
    assert sent + events.end() == text


def test_an_event_without_an_end_is_passed_on_in_the_end() -> None:
    events = Events()
    assert events.feed(b"x" * HELD_BYTES) == b""
    assert len(events.feed(b"x")) == HELD_BYTES + 1
    assert events.torn
    assert events.feed(b"\n\n") == b"\n\n"
    assert not events.torn
