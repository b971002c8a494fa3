"""A real llama-server behind a proxy, and at an IPv6 address: the engine's verdict is the engine's."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from archonctl.deployment.schema import Contract, Endpoint, Engine, ModelRef, Service
from archonctl.engines.llamacpp.adapter import ADAPTER
from archonctl.ledger.reader import read_ledger
from archonctl.probe.limits import Limits
from archonctl.probe.run import probe_endpoint
from archonctl.probe.values import Depth, Verdict
from support.engines import wait_for
from support.probing import leg, told
from support.reverse_proxy import Behaviour, reverse_proxy

pytestmark = pytest.mark.engine
PATIENT = Limits(generation_s=240, calibrate_s=240, floor_s=240, read_s=60, tokenize_s=120, idle_s=120)


@contextmanager
def running(server: Path, model: Path, listen: str, log: Path, *arguments: str) -> Iterator[None]:
    host, _, port = listen.rpartition(":")
    argv = [server, "-m", model, "--host", host.strip("[]"), "--port", port, "-lv", "4", "-t", "1", *arguments]
    with log.open("wb") as file, subprocess.Popen(argv, stdout=file, stderr=file) as process:
        try:
            # ready by its own words, which are written a little later than its health says so
            wait_for(lambda: process.poll() is not None or "model loaded" in log.read_text("utf-8", "replace"), 120)
            assert process.poll() is None, log.read_text("utf-8", "replace")[-2000:]
            yield
        finally:
            process.kill()


Probed = Callable[..., Verdict]


@pytest.fixture
def probed(llama_server: Path, tiny_gguf: Callable[..., Path], tmp_path: Path, free_port: int) -> Probed:
    """``probed(behaviour, depth=..., host=..., np=...)``: two slots of 1,024 and a contract of two sequences."""

    def run(
        does: Behaviour | None = None, *, depth: Depth = "full", host: str = "127.0.0.1", np: int = 2, times: int = 1
    ) -> Verdict:
        model, log, listen = tiny_gguf("llama"), tmp_path / "engine.log", f"{host}:{free_port}"
        contract, engine, ref = Contract(seqs=2, len=1000), Engine(kind="llamacpp"), ModelRef(path=str(model))
        arguments = ("-c", str(1024 * np), "-np", str(np), "--metrics")
        with running(llama_server, model, listen, log, *arguments):
            ledger = read_ledger(log, "llamacpp")
            if does is None:
                declared = Endpoint(contract=contract, engine=engine, model=ref, service=Service(listen=listen))
                for _ in range(times):
                    verdict = probe_endpoint(declared, ADAPTER.api, ledger, legs=depth, limits=PATIENT)
                    if verdict.word != "holds":
                        break
                return verdict
            with reverse_proxy(listen, does) as proxy:
                service = Service(listen=listen, public_url=f"http://127.0.0.1:{proxy.port}{does.prefix}/v1")
                declared = Endpoint(contract=contract, engine=engine, model=ref, service=service)
                return probe_endpoint(declared, ADAPTER.api, ledger, legs=depth, limits=PATIENT)

    return run


@pytest.mark.parametrize("does", [Behaviour(prefix="/llm", coding="gzip"), Behaviour(piece=300)], ids=["gzip", "small"])
def test_what_holds_behind_a_proxy_that_passes_on_what_comes_holds(probed: Probed, does: Behaviour) -> None:
    verdict = probed(does)
    assert verdict.word == "holds", told(verdict)


@pytest.mark.parametrize("piece", [-1, 8192])
def test_behind_a_proxy_that_buffers_nothing_is_broken_and_admission_holds(probed: Probed, piece: int) -> None:
    verdict = probed(Behaviour(piece=piece))
    assert verdict.word != "broken", told(verdict)
    assert leg(verdict, "capacity").code in ("", "hold-unproven")
    admitted = probed(Behaviour(piece=piece), depth="admission")
    assert admitted.word == "holds", told(admitted)


def test_fewer_slots_behind_a_proxy_that_buffers_are_broken_all_the_same(probed: Probed) -> None:
    verdict = probed(Behaviour(piece=-1), np=1)
    assert verdict.word == "broken", told(verdict)
    assert leg(verdict, "engine-report").code == "slots-short"


def test_an_ipv6_address_is_reached(probed: Probed) -> None:
    verdict = probed(host="[::1]", depth="admission")
    assert verdict.word == "holds", told(verdict)


def test_admission_holds_time_after_time_although_a_closed_stream_may_be_there_still(probed: Probed) -> None:
    """The stream beside the calibration is cut off; the server notices when it likes, and has two slots only."""
    verdict = probed(depth="admission", times=12)
    assert verdict.word == "holds", told(verdict)
