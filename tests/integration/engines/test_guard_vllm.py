"""The guard before a real vLLM, on a CPU, whose capacity archonctl verified itself (see ``test_up_vllm``)."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import httpx
import pytest

from support import real_vllm
from support.guard_process import CLI, Process, environment
from support.ports import free

pytestmark = [pytest.mark.engine, pytest.mark.optional, pytest.mark.timeout(600)]

CHAT = "/v1/chat/completions"


@dataclass
class Guarded:
    """A vLLM, the guard before it, and the guard's own pages."""

    engine: httpx.Client
    guard: httpx.Client
    admin: str

    def chat(self, client: httpx.Client, words: int, answer: int) -> httpx.Response:
        messages = [{"role": "user", "content": "word " * words}]
        return client.post(CHAT, json={"model": "tiny", "messages": messages, "max_tokens": answer, "ignore_eos": True})

    def metric(self, url: str, name: str) -> float:
        lines = httpx.get(f"{url}/metrics", timeout=60).text.splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith((f"{name} ", f"{name}{{")))


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    binary = real_vllm.installed()
    folder = tmp_path_factory.mktemp("guarded")
    port, listen, admin, env = free(), free(), free(), environment(folder)
    file = real_vllm.declare(folder, binary, port, knobs="num-gpu-blocks-override = 40\nmax-num-seqs = 8", seqs=2)
    argv = [str(CLI), "guard", str(file), "--listen", f"127.0.0.1:{listen}", "--admin", f"127.0.0.1:{admin}"]
    guard = Process(argv, folder / "guard.log", f"http://127.0.0.1:{admin}", env)
    try:
        done = subprocess.run([CLI, "up", file, "--detach"], env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        guard.start()
        with (
            httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=120) as engine,
            httpx.Client(base_url=f"http://127.0.0.1:{listen}", timeout=120) as client,
        ):
            yield Guarded(engine, client, f"http://127.0.0.1:{admin}")
    finally:
        guard.end()
        subprocess.run([CLI, "stop", file], env=env, capture_output=True, timeout=120, check=False)


def test_it_holds_requests_against_what_the_boot_log_and_the_engine_say(guarded: Guarded) -> None:
    state = httpx.get(f"{guarded.admin}/health").json()
    assert (state["window_tokens"], state["pool_tokens"], state["slots"]) == (2048, 5120, 8)


def test_what_it_counts_is_what_vllm_counts(guarded: Guarded) -> None:
    """The refusal of a request that is too long needs an exact count."""
    used = guarded.chat(guarded.engine, 50, 1).json()["usage"]["prompt_tokens"]
    refused = guarded.chat(guarded.guard, 50, 5000)
    told = refused.json()["error"]
    assert (refused.status_code, told["code"]) == (400, "request-over-window")
    assert told["capacity"]["breakdown_tokens"] == {"prompt": used, "answer": 5000}
    assert told["capacity"]["largest_max_tokens"] == 2048 - used
    answer = guarded.chat(guarded.guard, 50, 2048 - used).json()
    assert answer["usage"]["completion_tokens"] == 2048 - used


def test_four_long_conversations_take_turns_and_vllm_preempts_none(guarded: Guarded) -> None:
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: guarded.chat(guarded.guard, 330, 300), range(4)))
    assert [answer.json()["usage"]["total_tokens"] for answer in answers] == [1969] * 4
    assert guarded.metric(guarded.admin, "archon_guard_held_high_water_tokens") == 4096
    assert guarded.metric(str(guarded.engine.base_url), "vllm:num_preemptions_total") == 0


def test_a_stream_is_vllms_own_byte_by_byte(guarded: Guarded) -> None:
    body = {"model": "tiny", "prompt": "hello", "max_tokens": 6, "temperature": 0, "stream": True, "ignore_eos": True}
    events = []
    for client in (guarded.engine, guarded.guard):
        with client.stream("POST", "/v1/completions", json=body) as answer:
            lines = [line for line in answer.iter_lines() if line]
        assert lines[-1] == "data: [DONE]"
        events.append([line.partition('"choices"')[2] for line in lines])
    assert events[0] == events[1]
