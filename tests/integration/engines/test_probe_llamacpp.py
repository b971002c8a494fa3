"""The probe against a real llama-server: what holds is said to hold, what is broken is said to be, with numbers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from archonctl.deployment.schema import Contract, Endpoint, Engine, ModelRef, Service
from archonctl.engines.llamacpp.adapter import ADAPTER
from archonctl.ledger.reader import read_ledger
from archonctl.ledger.values import BootLedger
from archonctl.probe.limits import Limits
from archonctl.probe.run import probe_endpoint
from archonctl.probe.values import Depth, Extras, Verdict
from support.engines import wait_for
from support.ports import free
from support.probing import leg, told

pytestmark = pytest.mark.engine

TinyGguf = Callable[..., Path]
ARCHITECTURES = ("llama", "qwen2", "qwen3", "qwen3moe", "gemma3", "deepseek2", "gpt-oss", "qwen3next")
PATIENT = Limits(generation_s=240, calibrate_s=240, floor_s=240, read_s=60, tokenize_s=120, idle_s=120)
"""A machine that runs eight test suites at once is slow, and no verdict may depend on that."""


def declared(model: Path, port: int, seqs: int, length: int, **service: str) -> Endpoint:
    return Endpoint(
        contract=Contract(seqs=seqs, len=length),
        engine=Engine(kind="llamacpp"),
        model=ModelRef(path=str(model)),
        service=Service(listen=f"127.0.0.1:{port}", **service),
    )


@contextmanager
def running(argv: Sequence[str], port: int, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A llama-server that is ready, and gone afterwards."""
    command = [*argv, "--threads", "1"]  # two spinning threads starve whoever else runs on a small machine
    with (
        log.open("wb") as file,
        subprocess.Popen(command, stdout=file, stderr=file, stdin=subprocess.DEVNULL) as process,
    ):
        try:
            end = time.monotonic() + 120
            while True:
                try:
                    urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=30).close()
                    break
                except urllib.error.HTTPError as err:
                    err.close()
                except OSError:
                    pass
                assert process.poll() is None, log.read_text(errors="replace")[-2000:]
                assert time.monotonic() < end, "not ready"
                time.sleep(0.05)
            wait_for(lambda: "model loaded" in log.read_text("utf-8", "replace"), 60)  # a thread of its own writes it
            yield process
        finally:
            process.kill()


Served = Callable[..., tuple[Verdict, BootLedger]]


@pytest.fixture
def served(llama_server: Path, tiny_gguf: TinyGguf, tmp_path: Path) -> Served:
    """``served(seqs, len, *arguments, depth=..., model=..., ledger=...)``: start, probe, stop."""

    def serve(
        seqs: int,
        length: int,
        *arguments: str,
        depth: Depth = "full",
        model: Path | None = None,
        logged: bool = True,
    ) -> tuple[Verdict, BootLedger]:
        path, port, log = model or tiny_gguf("llama"), free(), tmp_path / "engine.log"
        endpoint = declared(path, port, seqs, length)
        argv = [str(llama_server), "-m", str(path), "--host", "127.0.0.1", "--port", str(port), *arguments]
        with running(argv, port, log):
            ledger = read_ledger(log, "llamacpp")
            verdict = probe_endpoint(endpoint, ADAPTER.api, ledger if logged else None, legs=depth, limits=PATIENT)
        return verdict, ledger

    return serve


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_what_the_adapter_starts_holds(
    architecture: str, llama_server: Path, tiny_gguf: TinyGguf, tmp_path: Path
) -> None:
    model = tiny_gguf(architecture, hidden=128) if architecture == "qwen2" else tiny_gguf(architecture)
    port, log = free(), tmp_path / "engine.log"
    bare = declared(model, port, 2, 1000)
    endpoint = bare.model_copy(update={"engine": Engine(kind="llamacpp", binary=str(llama_server))})
    with running(ADAPTER.command(endpoint).argv, port, log):
        verdict = probe_endpoint(endpoint, ADAPTER.api, read_ledger(log, "llamacpp"), limits=PATIENT)
    assert verdict.word == "holds", told(verdict)
    assert verdict.facts["held_at_once"] == 2
    assert verdict.facts["kv_tokens_logged"] == 2048
    assert verdict.facts["window_tokens"] == 1024


def test_the_whole_window_of_every_slot_holds(served: Served) -> None:
    verdict, ledger = served(3, 2048, "-c", "6144", "-np", "3", "-lv", "4")
    assert verdict.word == "holds", told(verdict)
    assert ledger.figures["kv_tokens"].value.low == verdict.facts["contract_tokens"] == 6144
    assert verdict.facts["held_tokens_at_least"] >= 0.95 * 6144


def test_a_unified_pool_of_the_contracts_size_holds(served: Served) -> None:
    verdict, _ = served(2, 2048, "-c", "4096", "-np", "2", "-kvu", "-lv", "4")
    assert verdict.word == "holds", told(verdict)


def test_a_context_too_small_is_broken_with_both_numbers(served: Served) -> None:
    # a slot below half of the contract: no prompt of the probe is short enough to be taken and then cut
    verdict, _ = served(2, 2048, "-c", "1536", "-np", "2", "-lv", "4")
    assert verdict.word == "broken", told(verdict)
    assert leg(verdict, "ledger").code == "kv-tokens-short"
    assert "1,536 KV tokens, the contract needs 4,096: 2,560 short" in leg(verdict, "ledger").message
    assert leg(verdict, "engine-report").code == "window-short"
    refused = leg(verdict, "capacity")
    assert (refused.code, refused.actual) == ("window-exceeded", "a window of 768 tokens")
    assert leg(verdict, "refusal").status == "pass"


def test_a_window_a_few_tokens_below_the_contract_is_broken(served: Served) -> None:
    verdict, _ = served(2, 2052, "-c", "4096", "-np", "2", "-lv", "4", logged=False)
    assert leg(verdict, "engine-report").code == "window-short", told(verdict)
    cut = leg(verdict, "capacity")
    assert (cut.code, cut.actual) == ("answer-cut", "2,048 tokens"), told(verdict)


def test_an_over_committed_unified_pool_is_broken(served: Served) -> None:
    verdict, _ = served(2, 4096, "-c", "4096", "-np", "2", "-kvu", "-lv", "4")
    assert verdict.word == "broken", told(verdict)
    assert leg(verdict, "ledger").code == "kv-tokens-short"
    exhausted = leg(verdict, "capacity")
    assert exhausted.code == "pool-exhausted", told(verdict)
    assert "8,192" in exhausted.message
    assert leg(verdict, "alive").status == "pass"


def test_fewer_slots_than_sequences_are_seen_by_requests_alone(
    llama_server: Path, tiny_gguf: TinyGguf, tmp_path: Path
) -> None:
    model, port, log = tiny_gguf("llama"), free(), tmp_path / "engine.log"
    argv = [str(llama_server), "-m", str(model), "--host", "127.0.0.1", "--port", str(port), "-c", "4096", "-np", "2"]
    mute = replace(ADAPTER.api, report="", metrics="")
    with running(argv, port, log):
        verdict = probe_endpoint(declared(model, port, 3, 2048), mute, None, limits=PATIENT)
    found = leg(verdict, "capacity")
    # The server's own list of slots decides: this client may have looked away for a moment.
    assert (verdict.word, found.code) == ("broken", "not-held-at-once"), told(verdict)
    assert found.actual == "2 at once"


def test_the_default_verbosity_is_no_evidence(served: Served) -> None:
    verdict, ledger = served(2, 2048, "-c", "4096", "-np", "2")
    assert "kv_tokens" not in ledger.figures
    assert verdict.word == "no evidence", told(verdict)
    assert leg(verdict, "ledger").code == "ledger-missing"
    assert leg(verdict, "capacity").status == "pass"


def test_admission_is_enough_where_it_is_asked_for(served: Served) -> None:
    verdict, _ = served(2, 2048, "-c", "4096", "-np", "2", "-lv", "4", depth="admission")
    assert verdict.word == "holds", told(verdict)
    assert "held_at_once" not in verdict.facts


def test_the_legs_that_are_asked_for_run_on_a_real_engine(
    llama_server: Path, tiny_gguf: TinyGguf, tmp_path: Path
) -> None:
    model, port, log = tiny_gguf("llama"), free(), tmp_path / "engine.log"
    argv = [str(llama_server), "-m", str(model), "--port", str(port), "-c", "16384", "-np", "2", "-lv", "4"]
    with running(argv, port, log):
        endpoint = declared(model, port, 2, 8192)
        ledger, extras = read_ledger(log, "llamacpp"), Extras(recall=True, interference=True, when_idle=True)
        verdict = probe_endpoint(
            endpoint, ADAPTER.api, ledger, legs="admission", limits=PATIENT, extras=extras, log_name=str(log)
        )
    assert verdict.word == "holds", told(verdict)
    numbers = leg(verdict, "interference").numbers
    assert float(numbers["step_ms"]) > 0
    assert float(numbers["prefix_hit_rate_cold"]) < 0.1
    assert float(numbers["prefix_hit_rate_warm"]) > 0.9
    # random weights know nothing, and that is no word on the window
    assert (leg(verdict, "recall").status, leg(verdict, "recall").code) == ("no evidence", "recall-unseen")
    assert leg(verdict, "ledger").proof[0].where == str(log)


def test_another_file_under_the_declared_name_is_broken(served: Served, tiny_gguf: TinyGguf, tmp_path: Path) -> None:
    asked = tmp_path / "asked.gguf"
    asked.write_bytes(b"")
    verdict, _ = served(
        1, 512, "-c", "512", "-np", "1", "-lv", "4", "-m", str(tiny_gguf("llama")), "--alias", "asked", model=asked
    )
    assert verdict.word == "broken", told(verdict)
    assert leg(verdict, "model-id").status == "pass"
    assert leg(verdict, "engine-report").code == "model-file-mismatch"


def test_a_key_is_needed_and_used(llama_server: Path, tiny_gguf: TinyGguf, tmp_path: Path) -> None:
    model, port, log = tiny_gguf("llama"), free(), tmp_path / "engine.log"
    key = tmp_path / "key"
    key.write_text("a-key-of-this-test\n")
    argv = [str(llama_server), "-m", str(model), "--port", str(port), "--api-key", "a-key-of-this-test"]
    with running([*argv, "-c", "2048", "-np", "2", "-lv", "4"], port, log):
        ledger = read_ledger(log, "llamacpp")
        without = probe_endpoint(declared(model, port, 2, 1024), ADAPTER.api, ledger, limits=PATIENT)
        endpoint = declared(model, port, 2, 1024, api_key_file=str(key))
        verdict = probe_endpoint(endpoint, ADAPTER.api, ledger, limits=PATIENT)
    assert (without.word, leg(without, "auth").code) == ("no evidence", "auth-required"), told(without)
    assert verdict.word == "holds", told(verdict)
    assert "a-key-of-this-test" not in repr(verdict)


def test_an_engine_killed_under_load_is_broken(llama_server: Path, tiny_gguf: TinyGguf, tmp_path: Path) -> None:
    model, port, log = tiny_gguf("llama"), free(), tmp_path / "engine.log"
    argv = [str(llama_server), "-m", str(model), "--port", str(port), "-c", "16384", "-np", "2", "-lv", "4"]
    with running(argv, port, log) as process:
        killed = threading.Event()

        def kill(event: object) -> None:
            if "past prefill" in getattr(event, "text", "") and not killed.is_set():
                killed.set()
                process.kill()

        endpoint = declared(model, port, 2, 8_192)
        verdict = probe_endpoint(endpoint, ADAPTER.api, read_ledger(log, "llamacpp"), on_progress=kill, limits=PATIENT)
    assert killed.is_set()
    assert verdict.word == "broken", told(verdict)
    assert leg(verdict, "capacity").code in ("connection-dropped", "stream-cut")
    assert leg(verdict, "alive").code == "engine-died"


_PROBE = """
import sys
from archonctl.deployment.schema import Contract, Endpoint, Engine, ModelRef, Service
from archonctl.engines.llamacpp.adapter import ADAPTER
from archonctl.probe.run import probe_endpoint
endpoint = Endpoint(contract=Contract(seqs=2, len=8192), engine=Engine(kind="llamacpp"),
    model=ModelRef(path=sys.argv[2]), service=Service(listen="127.0.0.1:" + sys.argv[1]))
def tell(event):
    if "past prefill" in event.text:
        print("flying", flush=True)
try:
    probe_endpoint(endpoint, ADAPTER.api, None, on_progress=tell)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def test_an_interrupt_closes_every_connection(llama_server: Path, tiny_gguf: TinyGguf, tmp_path: Path) -> None:
    model, port, log = tiny_gguf("llama"), free(), tmp_path / "engine.log"
    argv = [str(llama_server), "-m", str(model), "--port", str(port), "-c", "16384", "-np", "2"]
    environment = {**os.environ, "PYTHONWARNINGS": "error"}
    with running(argv, port, log):
        command = [sys.executable, "-c", _PROBE, str(port), str(model)]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        ) as probe:
            assert probe.stdout is not None
            assert probe.stdout.readline() == "flying\n"
            probe.send_signal(signal.SIGINT)
            out, err = probe.communicate(timeout=60)
        assert out.splitlines()[-1] == "interrupted"
        assert err == ""
        end = time.monotonic() + 120
        while b'"is_processing":true' in urllib.request.urlopen(f"http://127.0.0.1:{port}/slots", timeout=60).read():
            assert time.monotonic() < end, "the engine still works on what nobody waits for"
            time.sleep(0.1)
