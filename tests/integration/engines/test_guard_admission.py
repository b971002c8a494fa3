"""Admission before a real llama-server with a small unified pool, whose capacity archonctl verified itself."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.guard_process import CLI, Process, get, wait_for
from support.ports import free

pytestmark = pytest.mark.engine

DECLARATION = """
[contract]
seqs = 2
len = 512
[engine]
kind = "llamacpp"
version = "b11434"
binary = "{server}"
[engine.knobs]
kv-unified = true
parallel = 4
ctx-size = {pool}
[model]
path = "{model}"
[host]
detect = true
[service]
listen = "127.0.0.1:{port}"
load_timeout_s = 200
"""


@dataclass
class Guarded:
    """An endpoint that ``archonctl up`` verified, and a guard before it."""

    declaration: Path
    server: Path
    model: Path
    port: int
    url: str
    admin: str
    env: dict[str, str]
    guard: Process

    def up(self, pool: int) -> None:
        self.declaration.write_text(
            DECLARATION.format(server=self.server, model=self.model, port=self.port, pool=pool), encoding="utf-8"
        )
        self.archonctl("up", str(self.declaration), "--detach", "--leg", "ledger")

    def archonctl(self, *words: str) -> None:
        done = subprocess.run([CLI, *words], env=self.env, capture_output=True, text=True, timeout=280, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    def post(self, path: str, body: dict[str, Any], url: str = "") -> tuple[int, Any]:
        sent = json.dumps(body).encode()
        request = urllib.request.Request((url or self.url) + path, sent, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=240) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as err:
            with err:
                return err.code, json.loads(err.read())

    def engine_pid(self) -> int:
        """The process that listens at the engine's port, by its arguments."""
        port, server = str(self.port).encode(), str(self.server).encode()
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):  # one that has just ended
                words = path.read_bytes().split(b"\0")
                if words[0] == server and port in words:
                    return int(path.parent.name)
        raise AssertionError("the engine does not run")

    def metric(self, name: str) -> float:
        with urllib.request.urlopen(f"{self.admin}/metrics", timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        return float(next(line.rpartition(" ")[2] for line in lines if line.startswith(f"{name} ")))


@pytest.fixture(scope="module")
def guarded(
    llama_server: Path, tiny_gguf: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("admission")
    port, listen, admin = free(), free(), free()
    env = {k: v for k, v in os.environ.items() if not k.startswith("ARCHON")} | {
        "ARCHON_STATE_DIR": str(folder / "state")
    }
    (folder / "env").mkdir()
    options = ["--listen", f"127.0.0.1:{listen}", "--admin", f"127.0.0.1:{admin}", "--wait", "200"]
    argv = [str(CLI), "guard", str(folder / "env" / "small.toml"), *options]
    guard = Process(argv, folder / "guard.log", f"http://127.0.0.1:{admin}", env)
    found = Guarded(
        folder / "env" / "small.toml",
        llama_server,
        tiny_gguf("llama"),
        port,
        f"http://127.0.0.1:{listen}",
        f"http://127.0.0.1:{admin}",
        env,
        guard,
    )
    found.up(1280)
    try:
        guard.start()
        yield found
    finally:
        guard.stop()
        subprocess.run([CLI, "stop", str(found.declaration)], env=env, capture_output=True, timeout=60, check=False)


def full(number: int) -> dict[str, Any]:
    """A conversation of 450 tokens, that has nothing in common with another one."""
    return {"prompt": [5 + number] * 430, "max_tokens": 20, "ignore_eos": True}


def together(guarded: Guarded, count: int, url: str = "") -> list[int]:
    with ThreadPoolExecutor(count) as pool:
        return [code for code, _ in pool.map(lambda n: guarded.post("/v1/completions", full(n), url), range(count))]


def test_three_conversations_asked_of_a_pool_of_two_point_eight_are_all_answered(guarded: Guarded) -> None:
    assert together(guarded, 3, f"http://127.0.0.1:{guarded.port}") == [500] * 3, "what the engine does by itself"
    with ThreadPoolExecutor(1) as pool:
        os.kill(guarded.engine_pid(), signal.SIGSTOP)  # so that none ends before the last is there
        try:
            answers = pool.submit(together, guarded, 3)
            wait_for(lambda: guarded.metric("archon_guard_waiting_requests") == 1)
            assert guarded.metric("archon_guard_in_flight_requests") == 2
            assert guarded.metric("archon_guard_plan_margin_tokens") == 1280 - 900 - 450
        finally:
            os.kill(guarded.engine_pid(), signal.SIGCONT)
        assert answers.result() == [200] * 3
    assert guarded.metric("archon_guard_held_high_water_tokens") == 900


def test_a_long_one_gets_in_beside_a_stream_of_short_ones(guarded: Guarded) -> None:
    short = {"prompt": [3] * 100, "max_tokens": 5, "ignore_eos": True}
    long = {"prompt": [4] * 1260, "max_tokens": 20, "ignore_eos": True}
    with ThreadPoolExecutor(12) as pool:
        asked = [pool.submit(guarded.post, "/v1/completions", short) for _ in range(5)]
        asked.append(pool.submit(guarded.post, "/v1/completions", long))
        asked += [pool.submit(guarded.post, "/v1/completions", short) for _ in range(10)]
        assert [each.result()[0] for each in asked] == [200] * 16


def test_what_can_never_fit_is_told_what_would(guarded: Guarded) -> None:
    asked = {"messages": [{"role": "user", "content": "word " * 235}], "max_tokens": 5_000, "ignore_eos": True}
    code, answer = guarded.post("/v1/chat/completions", asked)
    error = answer["error"]
    assert (code, error["code"], error["type"]) == (400, "request-over-window", "invalid_request_error")
    largest = error["capacity"]["largest_max_tokens"]
    code, answer = guarded.post("/v1/chat/completions", {**asked, "max_tokens": largest})
    assert code == 200
    assert answer["usage"]["total_tokens"] == 1280, "the count was exact: the engine fills its window to the token"
    code, answer = guarded.post("/v1/chat/completions", {**asked, "max_tokens": largest + 1})
    assert (code, answer["error"]["capacity"]["largest_max_tokens"]) == (400, largest)


def test_an_answer_that_nobody_bounds_ends_with_the_declared_conversation(guarded: Guarded) -> None:
    asked = {"messages": [{"role": "user", "content": "hello"}], "ignore_eos": True}
    code, answer = guarded.post("/v1/chat/completions", asked)
    assert (code, answer["usage"]["total_tokens"], answer["choices"][0]["finish_reason"]) == (200, 512, "length")


def begin(guarded: Guarded, body: dict[str, Any], headers: str = "") -> socket.socket:
    """A request whose answer nobody reads: to be closed."""
    sent = json.dumps(body).encode()
    sock = socket.create_connection(("127.0.0.1", int(guarded.url.rpartition(":")[2])))
    head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\n{headers}Content-Length: {len(sent)}\r\n\r\n"
    sock.sendall(head.encode() + sent)
    return sock


def working(guarded: Guarded) -> int:
    found = get(f"http://127.0.0.1:{guarded.port}/slots") or []
    return sum(slot["is_processing"] for slot in found)


def retried(guarded: Guarded) -> float:
    return guarded.metric('archon_guard_retries_total{outcome="attempted"}')


LEAVES = {"prompt": [7] * 300, "max_tokens": 900, "ignore_eos": True, "n_probs": 100}
FOLLOWS = {"prompt": [9] * 1000, "max_tokens": 100, "ignore_eos": True}


@pytest.mark.parametrize("headers", ["", "X-Conversation-Id: one\r\n"])
def test_who_leaves_costs_nobody_an_answer(guarded: Guarded, headers: str) -> None:
    before = retried(guarded)
    for number in range(3):
        left = begin(guarded, LEAVES | {"stream": number == 1}, headers)
        wait_for(lambda: working(guarded) == 1, what="the engine works for who will leave")
        left.close()
        code, answer = guarded.post("/v1/completions", FOLLOWS)
        assert (code, answer["usage"]["total_tokens"]) == (200, 1100)
    assert retried(guarded) == before, "the engine ran out of memory for nobody"


def test_a_guard_that_was_killed_and_is_back_at_once_costs_nobody_an_answer(guarded: Guarded) -> None:
    left = begin(guarded, LEAVES)
    wait_for(lambda: working(guarded) == 1, what="the engine works for who will be cut off")
    guarded.guard.kill()
    left.close()
    guarded.guard.start()
    code, answer = guarded.post("/v1/completions", FOLLOWS)
    assert (code, answer["usage"]["total_tokens"]) == (200, 1100)


def test_another_start_s_capacity_is_taken_over(guarded: Guarded) -> None:
    guarded.archonctl("stop", str(guarded.declaration))
    guarded.up(1024)
    wait_for(lambda: get(f"{guarded.admin}/health")["pool_tokens"] == 1024, what="the new pool")
    code, answer = guarded.post("/v1/completions", {"prompt": [3] * 1020, "max_tokens": 100})
    assert (code, answer["error"]["capacity"]["budget_tokens"]) == (400, 1024)
