"""The figures of the archon host at request time: 3 x 200,000 of a cache that holds 2.8, with and without a guard.

The engine is the simulator of radiance 1.8.1, whose first boot had 556,348 tokens.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from archonctl.guard.capacity import OnDisk, joined
from archonctl.guard.live import Live
from archonctl.ledger.reader import LedgerReader
from archonctl.probe.report import read_server_info
from support.engines import wait_for
from support.guarding import Guarded, guarded
from support.simulated_radiance import PROGRAM, write_model

FLAGS = """
--max-num-seqs 3 --max-model-len 200000 --kv-cache-dtype fp8 --tp 2 --max-num-batched-tokens 2048
--host-pool-mib 44928 --gpu-headroom-mib 96 --prefix-cache-mib 8192
"""
ANSWER = 20


@dataclass
class Archon:
    """The engine, and a guard that knows what its boot log said."""

    engine: httpx.Client
    guard: Guarded
    overhead: int
    """What its template puts around one message."""

    def full(self, client: httpx.Client) -> httpx.Response:
        """A conversation of 200,000 tokens to the last one."""
        body = {
            "messages": [{"role": "user", "content": "word " * (200_000 - ANSWER - self.overhead)}],
            "max_tokens": ANSWER,
            "ignore_eos": True,
        }
        return client.post("/v1/chat/completions", json=body)


@pytest.fixture
def archon(tmp_path: Path, free_port: int) -> Iterator[Archon]:
    log = tmp_path / "boot.log"
    argv = [PROGRAM, "--model", write_model(tmp_path / "m.rad"), "--host", "127.0.0.1", "--port", str(free_port)]
    with log.open("wb") as file, subprocess.Popen([*argv, *FLAGS.split()], stderr=file) as process:
        engine = httpx.Client(base_url=f"http://127.0.0.1:{free_port}", timeout=120, trust_env=False)
        try:
            wait_for(lambda: "server:" in log.read_text("utf-8", "replace"))
            reader = LedgerReader("radiance", "1.8.1")
            reader.feed_block(log.read_bytes())
            live = Live(read_server_info(engine.get("/server_info").json(), "/server_info"))
            capacity = joined("radiance", OnDisk("this", "r", reader.result(), "its boot log"), live, 200_000)
            asked = {"messages": [{"role": "user", "content": "word"}], "max_tokens": 1}
            overhead = engine.post("/v1/chat/completions", json=asked).json()["usage"]["prompt_tokens"] - 1
            with guarded(free_port, "radiance", capacity) as guard:
                yield Archon(engine, guard, overhead)
        finally:
            engine.close()
            process.terminate()


def test_three_full_conversations_are_all_answered_where_the_engine_alone_refuses_one(archon: Archon) -> None:
    capacity = archon.guard.admission.capacity
    assert (capacity.pool_tokens, capacity.window_tokens, capacity.slots) == (556_348, 200_000, 3)
    with (
        ThreadPoolExecutor(3) as pool,
        httpx.Client(base_url=archon.guard.url, timeout=120, trust_env=False) as client,
    ):
        alone = [answer.status_code for answer in pool.map(archon.full, [archon.engine] * 3)]
        assert 400 in alone, "the silent break of the contract"
        answers = list(pool.map(archon.full, [client] * 3))
        assert [(a.status_code, a.json()["usage"]["total_tokens"]) for a in answers] == [(200, 200_000)] * 3
        assert archon.guard.admission.snapshot().high_water_tokens == 400_000, "the third waited"
