"""A multimodal projector in a real llama-server against the plan: its weights, and the cache beside them."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from archonctl.deployment.schema import Contract, Endpoint, Engine, ModelRef
from archonctl.host.profile import Host
from archonctl.ledger import read_ledger
from archonctl.memory.interval import MIB
from archonctl.plan.build import build_plan
from archonctl.plan.load import load_model
from support.mmproj import write_mmproj
from support.ports import free

pytestmark = pytest.mark.engine

_WORST = re.compile(r"estimated worst-case memory usage of mmproj is ([\d.]+) MiB")
_COMPUTE = re.compile(r"reserve_compute_meta: +CPU compute buffer size = +([\d.]+) MiB")
_LOADED = "loaded multimodal model"


def _boot(server: Path, argv: list[str], log: Path) -> str:
    port = free()
    with log.open("wb") as out:
        running = subprocess.Popen(
            [server, *argv, "--host", "127.0.0.1", "--port", str(port), "-lv", "4"],
            stdout=out,
            stderr=out,
            stdin=subprocess.DEVNULL,
        )
        try:
            until = time.monotonic() + 120
            while time.monotonic() < until and running.poll() is None and "n_ctx_slot" not in log.read_text("utf-8"):
                time.sleep(0.1)
        finally:
            running.terminate()
            running.wait(30)
    return log.read_text("utf-8")


def test_a_projector_takes_what_the_plan_says(
    llama_server: Path, tiny_gguf: Callable[..., Path], tmp_path: Path
) -> None:
    model, projector = tiny_gguf("llama", hidden=128), write_mmproj(tmp_path / "mmproj.gguf", 128)
    text = _boot(
        llama_server, ["-m", str(model), "--mmproj", str(projector), "-c", "4096", "-np", "1"], tmp_path / "log"
    )
    worst, compute = _WORST.search(text), _COMPUTE.search(text)
    assert _LOADED in text, text[-2000:]
    assert worst
    assert compute
    endpoint = Endpoint(
        contract=Contract(seqs=1, len=4096, kv_dtype="f16"),
        engine=Engine.model_validate(
            {"kind": "llamacpp", "version": "b11434", "binary": "/x", "knobs": {"mmproj": str(projector)}}
        ),
        model=ModelRef(path=str(model)),
    )
    plan = build_plan("e", endpoint, Host(ram_mib=64_000), load_model(endpoint))
    found = [demand for demand in plan.forecast.demands if "projector" in demand.detail]
    assert [demand.scope for demand in found] == ["host"]
    assert float(worst[1]) - float(compute[1]) == pytest.approx(found[0].bytes / MIB, abs=0.011)
    tokens = read_ledger(text.splitlines()).get("kv_tokens")
    assert tokens is not None
    assert plan.forecast.kv_tokens is not None
    assert tokens.best == plan.forecast.kv_tokens.best == 4096
