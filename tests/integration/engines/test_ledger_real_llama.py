"""Whole boot logs of a real llama-server: every verbosity, every cache layout, and the ways in which it fails."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from archonctl.ledger import BootLedger, LedgerReader, read_ledger
from archonctl.ledger.refusal import refusal
from support.ports import free

pytestmark = pytest.mark.engine

TinyGguf = Callable[..., Path]
BOOT_SECONDS = 120.0


@dataclass(frozen=True)
class Boot:
    """How one start went: its log, and the exit status of a server that did not get ready."""

    log: Path
    ready: bool
    status: int

    @property
    def ledger(self) -> BootLedger:
        return read_ledger(self.log)


Start = Callable[..., Boot]


@pytest.fixture
def start(llama_server: Path, tmp_path: Path) -> Start:
    """``start(*arguments)`` boots a server until it is ready or gone, stops it, and gives its log."""
    count = 0

    def run(*arguments: str | Path, memory_bytes: int = 0, port: int = 0) -> Boot:
        nonlocal count
        count += 1
        port = port or free()
        log = tmp_path / f"boot-{count}.log"
        with log.open("wb") as sink:
            server = subprocess.Popen(
                [*_limited(memory_bytes), llama_server, "--host", "127.0.0.1", "--port", str(port), *arguments],
                stdout=sink,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
            try:
                ready = _wait(server, port)
                server.terminate()
                server.wait(60)
            finally:
                if server.poll() is None:
                    os.killpg(server.pid, signal.SIGKILL)
                    server.wait()
        return Boot(log, ready, server.returncode)

    return run


def _limited(memory_bytes: int) -> list[str]:
    """A shell that bounds the address space of what it becomes."""
    return ["bash", "-c", f'ulimit -v {memory_bytes >> 10}; exec "$@"', "bash"] if memory_bytes else []


def _wait(server: subprocess.Popen[bytes], port: int) -> bool:
    end = time.monotonic() + BOOT_SECONDS
    while server.poll() is None and time.monotonic() < end:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
                if answer.status == 200 and server.poll() is None:
                    return True
        except (urllib.error.URLError, OSError):
            pass
        time.sleep(0.05)
    return False


def best(ledger: BootLedger, *names: str) -> tuple[float | None, ...]:
    values = (ledger.get(name) for name in names)
    return tuple(None if value is None else value.best for value in values)


@dataclass(frozen=True)
class Case:
    """Arguments and what the ledger must say."""

    arch: str
    arguments: tuple[str, ...]
    kv_tokens: int
    n_slots: int
    n_ctx_slot: int
    kv_mib: float
    extra: dict[str, float]


CASES = {
    "unified by default": Case("llama", ("-c", "8192"), 8192, 4, 8192, 8.0, {"streams": 1}),
    "one stream a slot": Case("llama", ("-c", "8192", "-np", "2"), 8192, 2, 4096, 8.0, {"streams": 2, "cells": 4096}),
    "unified on request": Case("llama", ("-c", "8192", "-np", "2", "-kvu"), 8192, 2, 8192, 8.0, {"streams": 1}),
    "rounded up": Case("llama", ("-c", "10000", "-np", "3"), 10752, 3, 3584, 10.5, {"n_ctx": 10752}),
    "quantised": Case(
        "llama",
        ("-c", "8192", "-np", "1", "-ctk", "q8_0", "-ctv", "q4_0"),
        8192,
        1,
        8192,
        3.25,
        {"k_mib": 2.12, "v_mib": 1.12},
    ),
    "sliding window": Case(
        "gemma3", ("-c", "8192", "-np", "2"), 8192, 2, 4096, 2.0, {"swa_cells": 1536, "swa_kv_mib": 3.75}
    ),
    "sliding window, full size": Case(
        "gemma3", ("-c", "8192", "-np", "1", "--swa-full"), 8192, 1, 8192, 2.0, {"swa_cells": 8192}
    ),
    "latent": Case("deepseek2", ("-c", "4096", "-np", "1"), 4096, 1, 4096, 18.0, {"v_mib": 0.0}),
    "hybrid": Case("qwen3next", ("-c", "8192", "-np", "2"), 8192, 2, 4096, 2.0, {"kv_layers": 1, "rs_cells": 2}),
}


@pytest.mark.parametrize("verbosity", [4, 5])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_what_was_allocated_is_read_at_any_telling_verbosity(
    start: Start, tiny_gguf: TinyGguf, case: Case, verbosity: int
) -> None:
    boot = start("-m", tiny_gguf(case.arch), *case.arguments, "-lv", str(verbosity))
    assert boot.ready
    ledger = boot.ledger
    assert ledger.engine == "llamacpp"
    assert ledger.ready_line
    assert ledger.boots == 1
    assert not ledger.missing
    assert best(ledger, "kv_tokens", "n_slots", "n_ctx_slot") == (case.kv_tokens, case.n_slots, case.n_ctx_slot)
    assert best(ledger, "kv_mib") == (case.kv_mib,)
    assert best(ledger, *case.extra) == tuple(case.extra.values())
    assert refusal(ledger) is None
    assert best(ledger, "draft_kv_mib") == (None,)


def test_json_lines_say_the_same(start: Start, tiny_gguf: TinyGguf) -> None:
    arguments = ("-m", tiny_gguf("gemma3"), "-c", "8192", "-np", "2", "-lv", "4")
    plain, lines = start(*arguments).ledger, start(*arguments, "--log-jsonl").ledger
    assert lines.figures.keys() == plain.figures.keys()
    assert best(lines, "kv_tokens", "kv_mib", "swa_kv_mib") == best(plain, "kv_tokens", "kv_mib", "swa_kv_mib")


def test_default_verbosity_is_no_evidence_of_tokens(start: Start, tiny_gguf: TinyGguf) -> None:
    ledger = start("-m", tiny_gguf("llama"), "-c", "8192").ledger
    assert best(ledger, "n_slots", "n_ctx_slot") == (4, 8192)
    assert "kv_tokens" not in ledger.figures
    assert set(ledger.missing) == {"kv_tokens", "kv_mib"}
    assert ledger.ready_line


def test_a_draft_model_adds_its_own_memory(start: Start, tiny_gguf: TinyGguf) -> None:
    model = tiny_gguf("llama")
    ledger = start("-m", model, "-md", model, "-c", "8192", "-np", "1", "-lv", "5").ledger
    assert best(ledger, "kv_tokens", "kv_mib", "draft_kv_mib") == (8192, 8.0, 8.0)


def test_a_window_over_the_trained_context_is_told(start: Start, tiny_gguf: TinyGguf) -> None:
    ledger = start("-m", tiny_gguf("llama", ctx=2048), "-c", "8192", "-np", "1", "-lv", "4").ledger
    assert best(ledger, "kv_tokens", "n_ctx_slot") == (8192, 2048)
    assert ledger.has("context-over-trained")


def test_a_follower_sees_tokens_and_readiness_as_they_come(start: Start, tiny_gguf: TinyGguf) -> None:
    boot = start("-m", tiny_gguf("llama"), "-c", "8192", "-np", "1", "-lv", "4")
    reader = LedgerReader("llamacpp")
    changes = [change for line in boot.log.read_bytes().splitlines() if (change := reader.feed(line))]
    tokens = next(i for i, change in enumerate(changes) if "kv_tokens" in change.figures)
    ready = next(i for i, change in enumerate(changes) if change.ready)
    assert tokens < ready
    assert reader.result() == boot.ledger


def _failures(folder: Path) -> Sequence[tuple[str, tuple[str, ...], str]]:
    (folder / "page.gguf").write_bytes(b"<!DOCTYPE html><html></html>" * 100)
    (folder / "short.gguf").write_bytes(b"GGUF\x03\x00\x00\x00")
    return (
        ("unknown argument", ("--no-such-flag",), "unknown-argument"),
        ("removed argument", ("--draft", "16"), "unknown-argument"),
        ("bad value", ("-ctk", "int3"), "argument-invalid"),
        ("no file", ("-m", str(folder / "none.gguf")), "model-load-failed"),
        ("html", ("-m", str(folder / "page.gguf")), "model-load-failed"),
        ("cut off", ("-m", str(folder / "short.gguf")), "model-load-failed"),
    )


@pytest.mark.parametrize("index", range(6))
def test_a_boot_that_fails_says_why(start: Start, tmp_path: Path, index: int) -> None:
    _, arguments, code = _failures(tmp_path)[index]
    boot = start(*arguments)
    assert not boot.ready
    cause = refusal(boot.ledger)
    assert cause is not None
    assert cause.code == code
    assert not boot.ledger.figures.keys() & {"kv_tokens", "n_slots"}


def test_a_truncated_model_is_named(start: Start, tiny_gguf: TinyGguf, tmp_path: Path) -> None:
    whole = tiny_gguf("llama").read_bytes()
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(whole[: len(whole) * 3 // 4])
    cause = refusal(start("-m", cut).ledger)
    assert cause is not None
    assert cause.code == "model-load-failed"


def test_quantised_values_without_flash_attention_are_named(start: Start, tiny_gguf: TinyGguf) -> None:
    cause = refusal(start("-m", tiny_gguf("llama"), "-fa", "off", "-ctv", "q8_0").ledger)
    assert cause is not None
    assert cause.code == "kv-dtype-unsupported"


def test_a_port_in_use_is_named(start: Start, tiny_gguf: TinyGguf) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        boot = start("-m", tiny_gguf("llama"), port=int(holder.getsockname()[1]))
    cause = refusal(boot.ledger)
    assert cause is not None
    assert cause.code == "port-in-use"


@pytest.mark.parametrize("verbosity", ["3", "5"])
def test_memory_that_is_not_there_is_named_and_gives_no_tokens(
    start: Start, tiny_gguf: TinyGguf, verbosity: str
) -> None:
    model = tiny_gguf("llama", layers=32, heads=8, kv_heads=8, head_dim=128, hidden=16, ff=16, ctx=131072)
    boot = start("-m", model, "-c", "131072", "-np", "1", "-lv", verbosity, memory_bytes=4 << 30)
    assert not boot.ready
    ledger = boot.ledger
    cause = refusal(ledger)
    assert cause is not None
    assert cause.code == "out-of-memory"
    assert "kv_tokens" not in ledger.figures
    assert best(ledger, "failed_alloc_mib") == (16384.0,)
