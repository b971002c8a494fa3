"""The radiance simulator as a process: what it prints, answers, refuses and how it ends."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from support.engines import wait_for
from support.simulated_radiance import PROGRAM, write_model

SHAPE = ["--max-num-seqs", "2", "--max-model-len", "1000", "--kv-cache-dtype", "fp8", "--tp", "2"]
SHAPE += ["--max-num-batched-tokens", "2048"]
BARE = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": "/"}
GIB = 1024**3

Start = Callable[..., httpx.Client]


@pytest.fixture
def start(tmp_path: Path, free_port: int) -> Iterator[Start]:
    """``start("--api-key", "k", version="1.8.1")``: a client of a simulator that is ready."""
    running: list[subprocess.Popen[bytes]] = []
    clients: list[httpx.Client] = []

    def ready(*flags: str, **simulate: object) -> httpx.Client:
        model = write_model(tmp_path / "tiny.rad", 3 * GIB)
        words = [w for key, value in simulate.items() for w in (f"--simulate-{key.replace('_', '-')}", str(value))]
        argv = [str(PROGRAM), *words, "--model", str(model), "--host", "127.0.0.1", "--port", str(free_port)]
        log = (tmp_path / "log").open("wb")
        running.append(subprocess.Popen([*argv, *SHAPE, *flags], env=BARE, stderr=log))
        log.close()
        client = httpx.Client(base_url=f"http://127.0.0.1:{free_port}", timeout=120, trust_env=False)
        clients.append(client)

        def up() -> bool:
            assert running[-1].poll() is None, (tmp_path / "log").read_text()
            try:
                return client.get("/health").status_code == 200
            except httpx.TransportError:
                return False

        wait_for(up)
        client.headers["x-pid"] = str(running[-1].pid)
        return client

    yield ready
    for client in clients:
        client.close()
    for process in running:
        process.kill()
        process.wait()


def chat(words: int = 5, **fields: object) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": "word " * words}], **fields}


def test_it_calls_itself_a_simulator_wherever_it_speaks(start: Start, tmp_path: Path) -> None:
    said = subprocess.run([PROGRAM, "--version"], env=BARE, capture_output=True, text=True, check=True)
    assert "SIMULATOR" in said.stdout
    client = start("--host-pool-mib", "50000")
    assert client.get("/health").headers["server"].startswith("radiance-simulator/")
    assert client.get("/version").json()["engine"] == "radiance-simulator"
    assert "SIMULATOR" in (tmp_path / "log").read_text().splitlines()[0]


def test_its_log_is_tagged_by_rank_and_the_first_line_of_a_table_alone_carries_the_letter(
    start: Start, tmp_path: Path
) -> None:
    start("--host-pool-mib", "50000")
    lines = (tmp_path / "log").read_text().splitlines()
    table = lines.index("I[0] VRAM budget, per card:")
    assert re.fullmatch(r"  card total +31\.11 GiB", lines[table + 1])
    assert any(line.startswith("I[1] kv: KV layer bundles") for line in lines)
    assert any(
        re.match(r"I\[0\] load: 3\.00 GiB of 3\.00 GiB read, [\d.]+ GB/s, at container offset", x) for x in lines
    )
    assert any(line.startswith("I[1] card 1 settled at ") for line in lines)


def test_a_graph_is_printed_and_nothing_served_and_the_level_is_the_environments(start: Start, tmp_path: Path) -> None:
    words = [PROGRAM, "--model", tmp_path / "none.rad", "--debug-graph"]
    done = subprocess.run(words, env=BARE, capture_output=True, text=True, check=True, timeout=60)
    assert "graph: " in done.stderr
    quiet = subprocess.run(words, env={**BARE, "RADIANCE_LOG": "warn"}, capture_output=True, text=True, check=True)
    assert quiet.stderr == ""


def test_what_it_shows_of_itself_is_there(start: Start, tmp_path: Path) -> None:
    client = start("--host-pool-mib", "50000", "--debug-placement")
    assert "SIMULATOR" in client.get("/").text
    assert client.get("/graph").json()["simulated"]
    assert "radiance:prefix_cache_ckpt_evictions_total" in client.get("/metrics").text
    log = (tmp_path / "log").read_text()
    assert re.search(r"^  static weights +0 B", log, re.MULTILINE)
    assert re.search(r"load: rank 1, mover took \S+ GiB, weights pool 0\.44 MiB free of \S+ GiB", log)
    assert "placement: " in log


def test_a_small_answer_of_a_reasoning_model_has_no_content(start: Start) -> None:
    client = start("--host-pool-mib", "50000")
    answer = client.post("/v1/chat/completions", json=chat(max_tokens=16)).json()
    choice = answer["choices"][0]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("", "length")
    assert choice["message"]["reasoning_content"]
    assert answer["usage"]["completion_tokens"] == 16
    plain = client.post("/v1/chat/completions", json=chat(max_tokens=16, reasoning_effort="none")).json()
    assert plain["choices"][0]["message"]["content"]


def test_a_stream_ends_with_usage_where_it_was_asked_for(start: Start) -> None:
    client = start("--host-pool-mib", "50000")
    body = {"prompt": "a b c", "max_tokens": 9, "stream": True, "stream_options": {"include_usage": True}}
    with client.stream("POST", "/v1/completions", json=body) as answer:
        events = [line.removeprefix("data: ") for line in answer.iter_lines() if line]
    assert events[-1] == "[DONE]"
    assert json.loads(events[-2])["usage"] == {"prompt_tokens": 3, "completion_tokens": 9, "total_tokens": 12}
    assert json.loads(events[-3])["choices"][0]["finish_reason"] == "length"


def test_what_it_does_not_know_or_cannot_hold_is_refused_by_name(start: Start) -> None:
    client = start("--host-pool-mib", "50000")
    unknown = client.post("/v1/completions", json={"prompt": "a", "logit_bias": {}})
    assert (unknown.status_code, unknown.json()["error"]["param"]) == (400, "logit_bias")
    long = client.post("/v1/completions", json={"prompt": "a " * 1200})
    assert (long.status_code, "at least 201 tokens" in long.json()["error"]["message"]) == (400, True)
    assert client.post("/v1/completions", content=b"[[").status_code == 400
    assert client.get("/nothing").status_code == 404
    assert client.post("/tokenize", json={"prompt": "a b"}).json()["count"] == 2


def test_a_full_queue_is_429_with_a_time_to_wait_and_the_load_tells(start: Start) -> None:
    client = start("--host-pool-mib", "50000", "--max-queued-requests", "3", "--retry-after", "7", step_s=0.02)
    body = {"prompt": "a", "max_tokens": 100, "ignore_eos": True}
    with ThreadPoolExecutor(3) as pool:
        held = [pool.submit(client.post, "/v1/completions", json=body) for _ in range(3)]
        wait_for(lambda: client.get("/load").json()["server_load"] == 3)
        load = client.get("/load").json()
        assert (load["running"], load["waiting"]) == (2, 1)
        full = client.post("/v1/completions", json=body)
        assert (full.status_code, full.headers["retry-after"]) == (429, "7")
        assert [future.result().status_code for future in held] == [200, 200, 200]
    assert 'http_admission_rejected_total{model_name="tiny"} 1' in client.get("/metrics").text


def test_the_pool_is_real_and_what_does_not_fit_beside_others_is_400_at_admission(start: Start) -> None:
    # 29,711 MiB of experts leave a card 435 of 30,146; less the state of two sequences they hold about 30,000 tokens
    client = start("--host-pool-mib", "41060", "--max-model-len", "20000", step_s=0.02)
    pool = client.get("/stats").json()["kv_pool_tokens"]
    assert 20_000 < pool < 40_000
    body = {"prompt": "a " * 19_000, "max_tokens": 1000, "ignore_eos": True}
    with ThreadPoolExecutor(1) as others:
        first = others.submit(client.post, "/v1/completions", json=body)
        wait_for(lambda: client.get("/stats").json()["kv_held_tokens"] == 20_000)
        second = client.post("/v1/completions", json=body)
        assert second.status_code == 400
        assert f"cut at least {40_000 - pool} tokens" in second.json()["error"]["message"]
        assert client.get("/health").status_code == 200
        assert client.post("/v1/completions", json={"prompt": "a", "max_tokens": 2}).status_code == 200
        first.cancel()


def test_a_client_that_leaves_gives_its_pages_back(start: Start) -> None:
    client = start("--host-pool-mib", "50000", step_s=0.02)
    body = {"prompt": "a", "max_tokens": 900, "ignore_eos": True, "stream": True}
    with client.stream("POST", "/v1/completions", json=body) as answer:
        next(answer.iter_lines())
        assert client.get("/stats").json()["kv_held_tokens"] > 0
    wait_for(lambda: client.get("/stats").json()["kv_held_tokens"] == 0)


def test_with_a_key_only_health_is_open(start: Start) -> None:
    client = start("--host-pool-mib", "50000", "--api-key", "secret")
    assert client.get("/ping").status_code == 200
    assert client.get("/v1/models").status_code == 401
    assert client.get("/v1/models", headers={"Authorization": "Bearer secret"}).status_code == 200


def test_sigterm_ends_it_with_0_and_what_it_was_answering_with_an_error(start: Start, tmp_path: Path) -> None:
    client = start("--host-pool-mib", "50000", step_s=0.02)
    body = {"prompt": "a", "max_tokens": 900, "ignore_eos": True, "stream": True}
    with client.stream("POST", "/v1/completions", json=body) as answer:
        lines = answer.iter_lines()
        next(lines)
        subprocess.run(["kill", f"-{signal.SIGTERM.value}", client.headers["x-pid"]], check=True)
        rest = [line for line in lines if line]
    assert "shutting down" in rest[-2]
    assert "server: stopping" in (tmp_path / "log").read_text()


@pytest.mark.parametrize(("version", "code"), [("1.0.5", 2), ("1.2.0", 70), ("1.8.1", 70)])
def test_a_bad_command_line_ends_it_at_once(version: str, code: int, tmp_path: Path) -> None:
    argv = [PROGRAM, "--simulate-version", version, "--model", tmp_path / "none", "--no-such-flag"]
    done = subprocess.run(argv, env=BARE, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, "E unknown option '--no-such-flag'" in done.stderr) == (code, True)


def test_a_missing_model_or_a_taken_port_is_fatal(tmp_path: Path, start: Start) -> None:
    argv = [PROGRAM, "--model", tmp_path / "none", *SHAPE]
    done = subprocess.run(argv, env=BARE, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, "radiance: fatal: cannot open" in done.stderr) == (70, True)
    client = start("--host-pool-mib", "50000")
    argv = [PROGRAM, "--model", tmp_path / "tiny.rad", *SHAPE, "--host-pool-mib", "50000"]
    argv += ["--host", "127.0.0.1", "--port", str(client.base_url.port)]
    done = subprocess.run(argv, env=BARE, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, "radiance: fatal: cannot listen" in done.stderr) == (70, True)
