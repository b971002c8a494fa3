"""What was verified, joined with what the engine states; what nobody says is unknown."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from archonctl.deployment.load import LoadedEndpoint
from archonctl.deployment.schema import Contract, Endpoint, Engine, ModelRef, Service
from archonctl.guard import capacity as module
from archonctl.guard.capacity import CapacityWatch, OnDisk, joined
from archonctl.guard.live import Live, live_of
from archonctl.guard.values import Capacity
from archonctl.ledger.values import BootLedger, Reading
from archonctl.memory.interval import Interval
from archonctl.probe.report import EngineReport


def ledger(**figures: float | Interval) -> BootLedger:
    values = {k: v if isinstance(v, Interval) else Interval.exact(v, "log") for k, v in figures.items()}
    return BootLedger("", figures={name: Reading(value, 1, "") for name, value in values.items()})


def test_radiance_of_the_archon_host_by_its_verified_start() -> None:
    """The first boot of 1.8.1: 2.8 conversations of 200,000, and a page of 4 tokens."""
    disk = OnDisk("boot/1/2/", "abc", ledger(kv_tokens=556_348, n_seqs=3, max_model_len=200_000), "the verdict")
    found = joined("radiance", disk, Live(EngineReport("/server_info", window=200_000, slots=3)), 200_000)
    assert found == Capacity(
        200_000, 556_348, 3, 4, sequence_tokens=200_000, release="abc", source="the verdict and /server_info"
    )


def test_a_limit_of_one_request_below_the_window_binds() -> None:
    disk = OnDisk("s", "r", ledger(kv_tokens=150_000, request_limit_tokens=149_996), "log")
    assert joined("radiance", disk, Live(EngineReport("/server_info", window=200_000))).window_tokens == 149_996


def test_a_rounded_figure_counts_by_its_low_end() -> None:
    disk = OnDisk("s", "r", ledger(kv_tokens=Interval(540_000, 556_000, 570_000, "log")), "log")
    assert joined("vllm", disk, Live()).pool_tokens == 540_000


def test_what_the_engine_states_outranks_a_log_that_contradicts_it() -> None:
    disk = OnDisk("s", "r", ledger(kv_tokens=8_192, n_ctx_slot=8_192, n_slots=2), "the verdict")
    found = joined("llamacpp", disk, Live(EngineReport("/props", window=4_096, slots=2)))
    assert (found.window_tokens, found.pool_tokens, found.source) == (4_096, None, "/props")


def test_vllm_states_its_pool_and_its_blocks_and_queues_by_itself() -> None:
    report = EngineReport("/metrics", window=8_192, kv_tokens=524_288, concurrency=64.0, blocks=4_096, block_tokens=128)
    found = joined("vllm", OnDisk(), Live(report))
    assert (found.pool_tokens, found.page_tokens, found.queues, found.slots) == (524_288, 128, True, None)


def test_nothing_known_is_nothing_enforced() -> None:
    found = joined("llamacpp", OnDisk(), Live(), 1_024)
    assert not found.is_known
    assert found.source == ""


@contextmanager
def serving(answers: Mapping[str, Any]) -> Iterator[int]:
    """A server that answers GET with JSON or text by path."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = answers.get(self.path)
            body = found.encode() if isinstance(found, str) else json.dumps(found).encode()
            self.send_response(404 if found is None else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


def endpoint(kind: str, port: int) -> Endpoint:
    return Endpoint(
        contract=Contract(seqs=2, len=1_024),
        engine=Engine.model_validate({"kind": kind}),
        model=ModelRef(path="/models/x"),
        service=Service(listen=f"127.0.0.1:{port}"),
    )


LABELS = 'block_size="16",num_gpu_blocks="64",kv_cache_size_tokens="1024",kv_cache_max_concurrency="2.0"'
VLLM = f"vllm:cache_config_info{{{LABELS}}} 1.0\n"


@pytest.mark.parametrize(
    ("kind", "answers", "live"),
    [
        (
            "llamacpp",
            {
                "/props": {
                    "default_generation_settings": {"n_ctx": 512, "params": {"n_predict": 99}},
                    "total_slots": 4,
                },
                "/slots": [{"id": 0, "n_ctx": 500}, {"id": 1, "n_ctx": 512}],
            },
            Live(EngineReport("/props and /slots", 500, 2), 99),
        ),
        (
            "vllm",
            {"/metrics": VLLM, "/v1/models": {"data": [{"id": "x", "max_model_len": 512}]}},
            Live(EngineReport("/metrics", 512, kv_tokens=1_024, concurrency=2.0, blocks=64, block_tokens=16)),
        ),
        (
            "radiance",
            {
                "/server_info": {
                    "server": {"max_model_len": 512, "max_num_seqs": 3},
                    "request_defaults": {"max_tokens": 7},
                }
            },
            Live(EngineReport("/server_info", 512, 3), 7),
        ),
        (
            "sglang",
            {"/get_server_info": {"context_length": 512, "max_total_num_tokens": 2_048, "dp_size": 2}},
            Live(EngineReport("/get_server_info", 512, kv_tokens=2_048, replicas=2)),
        ),
        ("llamacpp", {}, Live()),
        ("llamacpp", {"/props": "no JSON"}, Live()),
        ("vllm", {"/metrics": "\0\0"}, Live(EngineReport("/metrics"))),
    ],
)
def test_what_each_engine_states(kind: str, answers: Mapping[str, Any], live: Live) -> None:
    with serving(answers) as port:
        assert live_of(endpoint(kind, port)) == live


def test_an_engine_that_is_away_states_nothing(free_port: int) -> None:
    assert live_of(endpoint("llamacpp", free_port)) == Live()


def test_an_engine_that_goes_away_keeps_its_capacity_until_another_one_answers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    disk, live = [OnDisk("first")], [Live(EngineReport("/props", window=512, slots=2))]
    monkeypatch.setattr(module, "on_disk", lambda *_: disk[0])
    monkeypatch.setattr(module, "live_of", lambda *_: live[0])
    renewed: list[int] = []
    loaded = LoadedEndpoint(endpoint("llamacpp", 1), "x", tmp_path / "x.toml", tmp_path)
    watch = CapacityWatch(loaded, None, {}, lambda: renewed.append(1))

    def windows() -> int | None:
        return asyncio.run(watch.refresh()).window_tokens

    assert (windows(), windows(), renewed) == (512, 512, [])
    live[0] = Live()
    assert (windows(), renewed) == (512, [])
    disk[0] = OnDisk("second")
    assert (windows(), renewed) == (None, [1])
    live[0] = Live(EngineReport("/props", window=256, slots=2))
    assert windows() == 256


def test_the_state_folder_tells_the_start_that_runs_and_a_damaged_one_nothing(tmp_path: Path) -> None:
    said: list[str] = []
    loaded = LoadedEndpoint(endpoint("llamacpp", 1), "x", tmp_path / "x.toml", tmp_path)
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "running.json").write_text("{half", encoding="utf-8")
    watch = CapacityWatch(loaded, None, {"ARCHON_STATE_DIR": str(tmp_path)}, trouble=said.append)
    assert not asyncio.run(watch.refresh()).is_known
    asyncio.run(watch.refresh())
    assert len(said) == 1, "the same trouble is told once"
    assert "state-unreadable" in said[0]
