"""The guard before a real llama-server, asked by the `openai` package and by hostile clients; either side is killed.

Each client asks for words of its own by a grammar, so that an answer that belongs to another is seen.
"""

from __future__ import annotations

import json
import random
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import openai
import pytest

from support.guard_process import Stand, get, stand, wait_for
from support.guarding import raw

pytestmark = pytest.mark.engine

LONG: dict[str, object] = {"ignore_eos": True, "n_probs": 500}
"""For an answer so large that it cannot end before its client has read it."""
TYPED = {"engine-lost", "engine-away", "guard-stopping", "request-over-window"}


@pytest.fixture(scope="module")
def model(tiny_gguf: Callable[..., Path]) -> Path:
    return tiny_gguf("llama")


@pytest.fixture(scope="module")
def stood(llama_server: Path, model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    folder = tmp_path_factory.mktemp("guarded")
    with stand(llama_server, model, folder, "-c", "2048", "-np", "2", "--slots", guard=("--wait", "200")) as both:
        yield both


def client(url: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=200)


def words(name: str) -> dict[str, str]:
    """Extra fields that leave the engine one answer: this name."""
    return {"grammar": f'root ::= "{name}"'}


def ask(url: str, name: str, *, stream: bool = False, filler: int = 1, leave: bool = False) -> str | None:
    """The answer; None where the client left in the middle."""
    http = client(url)
    messages = [{"role": "user", "content": f"{name} " * filler}]
    if not stream:
        answer = http.chat.completions.create(
            model="x", messages=messages, max_tokens=60, extra_body=words(name)  # type: ignore[arg-type]
        )  # fmt: skip
        return answer.choices[0].message.content or ""
    said = ""
    with http.chat.completions.create(
        model="x", messages=messages, max_tokens=60, stream=True, extra_body=words(name)  # type: ignore[arg-type]
    ) as events:  # fmt: skip
        for event in events:
            said += (event.choices[0].delta.content or "") if event.choices else ""
            if leave and said:
                return None
    return said


@dataclass
class Outcome:
    """What came of many requests."""

    right: int = 0
    left: int = 0
    refused: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def one(self, url: str, name: str, **how: object) -> None:
        try:
            said = ask(url, name, **how)  # type: ignore[arg-type]
        except openai.APIConnectionError as err:
            self.wrong.append(f"{name}: {err!r} from {err.__cause__!r}")
        except openai.APIError as err:
            code = str(err.code)
            (self.refused if code in TYPED else self.wrong).append(code if code in TYPED else f"{name}: {err!r}")
        else:
            if said is None:
                self.left += 1
            elif said == name:
                self.right += 1
            else:
                self.wrong.append(f"{name}: {said!r}")


def hostile(url: str, seed: int) -> list[bytes]:
    """Things that nobody should send."""
    chance, port = random.Random(seed), int(url.rpartition(":")[2])
    body = json.dumps({"messages": [{"role": "user", "content": "x"}], "max_tokens": 3}).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
    sent = [
        head + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + head,
        head + b"Content-Length: %d\r\n\r\n%s" % (len(body), body.replace(b"{", b"[", 1)),
        head + b"Content-Length: 2\r\n\r\n[]",
        head + b"Content-Length: 20\r\n\r\n" + b"[" * 20,
        head + b'Content-Length: 30\r\n\r\n{"messages": [{"role": "user"}]'[:30],
        bytes(chance.randrange(256) for _ in range(200)) + b"\r\n\r\n",
        b"POST /v1/chat%2Fcompletions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}",
    ]
    got = [raw(port, each) for each in sent]
    with socket.create_connection(("127.0.0.1", port)) as sock:  # half a request, and gone
        sock.sendall(head + b"Content-Length: 99999\r\n\r\n{")
    return got


def held(stood: Stand) -> tuple[int, int]:
    """Requests that the guard lets in and that wait."""
    state = get(f"{stood.admin}/health")
    return state["in_flight"], state["waiting"]


def test_mixed_traffic_has_its_own_answers_and_typed_errors_only(stood: Stand) -> None:
    found = Outcome()
    wild: list[bytes] = []

    def one(number: int) -> None:
        chance = random.Random(number)
        for turn in range(6):
            name = f"client {number} turn {turn}"
            kind = (number + turn) % 6
            if kind == 0:
                wild.extend(hostile(stood.url, number * 100 + turn))
            elif kind == 1:
                found.one(stood.url, name, filler=2000)
            elif kind == 2:
                found.one(stood.url, name, stream=True, leave=True)
            else:
                found.one(stood.url, name, stream=kind == 3, filler=chance.choice((1, 5, 30)))

    with ThreadPoolExecutor(10) as pool:
        list(pool.map(one, range(10)))
    assert not found.wrong
    assert set(found.refused) == {"request-over-window"}
    assert (found.right + found.left + len(found.refused), found.left > 0) == (50, True)
    for got in wild:
        head, _, body = got.partition(b"\r\n\r\n")
        assert b" 4" in head.split(b"\r\n")[0] or b" 501" in head.split(b"\r\n")[0], got
        assert json.loads(body)["error"]["message"]
    wait_for(lambda: stood.busy_slots() == 0, what="slots work for clients that have left")
    wait_for(lambda: held(stood) == (0, 0), what="requests of clients that have left are held")
    assert "Traceback" not in stood.guard.text()


def test_a_client_that_leaves_frees_its_slot_at_once(stood: Stand) -> None:
    events = client(stood.url).completions.create(
        model="x", prompt="go on", max_tokens=900, stream=True, extra_body=LONG
    )
    next(iter(events))
    assert stood.busy_slots() == 1
    events.close()
    wait_for(lambda: stood.busy_slots() == 0, what="the engine still works for it")


def test_the_engine_is_killed_and_comes_back_under_load(stood: Stand) -> None:
    found, stop = Outcome(), threading.Event()

    def load(number: int) -> None:
        turn = 0
        while not stop.is_set():
            found.one(stood.url, f"client {number} turn {turn}", stream=turn % 2 == 0)
            turn += 1

    with ThreadPoolExecutor(6) as pool:
        running = [pool.submit(load, number) for number in range(6)]
        try:
            for _ in range(2):
                wait_for(lambda before=found.right: found.right > before + 20, what="answers before the kill")
                stood.engine.kill()
                time.sleep(0.5)
                stood.engine.start()
            wait_for(lambda before=found.right: found.right > before + 20, what="answers after it came back")
        finally:
            stop.set()
            for each in running:
                each.result(240)
    assert not found.wrong
    assert set(found.refused) <= {"engine-lost"}, "who waited for it got an answer"
    wait_for(lambda: held(stood) == (0, 0), what="answered requests are held")


def test_an_engine_that_is_told_to_end_keeps_nobody_waiting_and_ends(stood: Stand) -> None:
    """A request that it has accepted, and reads only when its queue is closed: llama-server never answers that one."""
    engine = stood.engine.process
    assert engine is not None
    body = {"prompt": [5, 6, 7], "max_tokens": 3}  # nothing to count
    http = httpx.Client(base_url=stood.url, timeout=60)
    with http, ThreadPoolExecutor(1) as pool:
        assert http.post("/v1/completions", json=body).status_code == 200
        engine.send_signal(signal.SIGSTOP)
        asked = pool.submit(http.post, "/v1/completions", json=body)
        wait_for(lambda: get(f"{stood.admin}/health")["in_flight"] == 1)
        engine.send_signal(signal.SIGTERM)
        engine.send_signal(signal.SIGCONT)
        try:
            engine.wait(30)
        finally:
            stood.engine.end()
            stood.engine.start()
        answer = asked.result()
    assert answer.status_code == 200 or answer.json()["error"]["code"] == "engine-lost"


def test_the_guard_is_killed_and_the_engine_stops_working_for_its_clients(stood: Stand) -> None:
    events = client(stood.url).completions.create(
        model="x", prompt="go on", max_tokens=900, stream=True, extra_body=LONG
    )
    next(iter(events))
    stood.guard.kill()
    with pytest.raises((openai.APIError, httpx.HTTPError)):
        list(events)
    with pytest.raises(openai.APIConnectionError):
        ask(stood.url, "nobody")
    wait_for(lambda: stood.busy_slots() == 0, what="the engine still works for it")
    stood.guard.start()
    assert ask(stood.url, "back again") == "back again"


def test_a_stopped_guard_lets_answers_end_and_exits_well(stood: Stand) -> None:
    with ThreadPoolExecutor(2) as pool:
        long = pool.submit(
            lambda: client(stood.url).completions.create(
                model="x", prompt="go on", max_tokens=400, extra_body={"ignore_eos": True, "n_probs": 50}
            )
        )
        wait_for(lambda: stood.busy_slots() == 1)
        assert stood.guard.stop() == 0
        assert long.result().usage.completion_tokens == 400  # type: ignore[union-attr]
    stood.guard.start()


def test_memory_that_runs_out_is_tried_again_and_both_are_answered(
    llama_server: Path, model: Path, tmp_path: Path
) -> None:
    """A cache that two slots share, and requests that only fit one after the other, of a guard that knows no pool."""
    options = ("-c", "4096", "-np", "2", "-kvu", "--slots", "--slot-save-path", str(tmp_path))
    with stand(llama_server, model, tmp_path, *options) as both:

        def one(name: str) -> int:
            answer = client(both.url).completions.create(
                model="x", prompt=f"{name} " * 120, max_tokens=1700, extra_body={"ignore_eos": True}
            )
            return answer.usage.completion_tokens if answer.usage else 0

        with ThreadPoolExecutor(2) as pool:
            assert list(pool.map(one, ("left", "rite"))) == [1700, 1700]
        wait_for(lambda: both.guard.text().count("POST /v1/completions") == 2)
        assert "end=retried" in both.guard.text()
