"""What a declaration plans, against what llama-server prints when it is started by it: every cache, to the rounding."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from archonctl.deployment.schema import Contract, Endpoint, Engine, ModelRef, Service
from archonctl.engines.llamacpp.adapter import ADAPTER
from archonctl.engines.llamacpp.assess import assess
from archonctl.engines.llamacpp.kv import KvAllocation
from archonctl.host.profile import Host
from archonctl.memory.interval import MIB, Interval
from archonctl.model import demo_gguf
from archonctl.model.gguf_writer import GgufWriter
from archonctl.plan.build import build_plan
from archonctl.plan.load import load_model

sys.path.insert(0, str(Path(__file__).parent))
from test_llamacpp_law import ARCHITECTURES, boot

pytestmark = pytest.mark.engine

DRAFT = "(a draft model)"
FLAGS: tuple[dict[str, Any], ...] = (
    {"c": 6000, "np": 3},
    {"kvu": True, "np": 2, "kv_dtype": "q8_0"},
    {"np": -1, "ub": 64, "b": 128},
    {"swa-full": True, "ubatch-size": 1024, "kv_dtype": "q8_0/q4_0"},
    {"fa": "off", "kv_dtype": "q5_1/f16"},
    {"nkvo": True, "ncmoe": 2, "cram": 0},
    {"cmoe": True, "ctx-checkpoints": 0, "ot": "ffn_down=CPU"},
    {"rope-scaling": "yarn", "rope-scale": 2, "yarn-orig-ctx": 4096},
    {"rope-scaling": "linear", "rope-scale": 4, "c": 9000},
    {"embeddings": True, "pooling": "mean", "ub": 256},
    {"md": DRAFT, "spec-type": "draft-simple"},
    {"md": DRAFT, "spec-draft-type-k": "q8_0", "ctvd": "q4_0", "kvu": True, "spec-draft-n-max": 8},
    {"md": DRAFT, "swa-full": True, "fa": "off", "np": 3, "ub": 128},
    {"c": 0, "fit": "off"},
    {"c": 0},
    {"c": 0, "fit-ctx": 4096, "kv-unified-per-slot": 700, "kvu": True},
    {"cache-ram": 100, "no-cache-prompt": True, "load-mode": "none", "temp": 0},
)
"""Every knob that decides cells or their bytes, and some that must not."""

_CACHE = re.compile(
    r"llama_kv_cache: size = +([\d.]+) MiB \( *(\d+) cells, +(\d+) layers, +(\d+)/(\d+) seqs\), "
    r"K \((\w+)\): +([\d.]+) MiB, V \((\w+)\): +([\d.]+) MiB"
)
_STATES = re.compile(r"llama_memory_recurrent: size = +([\d.]+) MiB \( *(\d+) cells")
_WEIGHTS = re.compile(r"load_tensors: +\S+ model buffer size = +([\d.]+) MiB")
_CONTEXT = re.compile(r"llama_context: n_ctx += (\d+)")


def printed(law: KvAllocation, type_k: str, type_v: str) -> list[tuple[Any, ...]]:
    """The caches of an allocation as they are compared: figures exactly, bytes with the log's rounding."""
    streams = (law.caches[0].cells, law.caches[0].streams)
    assert streams[0] * streams[1] == law.tokens
    return [(c.cells, c.layers, c.streams, type_k, type_v, c.bytes, c.k_bytes, c.v_bytes) for c in law.caches]


@pytest.mark.parametrize("flags", FLAGS, ids=lambda f: "_".join(f"{k}={v}" for k, v in f.items()).replace(DRAFT, "D"))
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_ledger_is_what_was_planned(
    llama_server: Path, tiny_gguf: Callable[..., Path], architecture: str, flags: dict[str, Any]
) -> None:
    drafting = str(tiny_gguf("gemma3", layers=3, ctx=8192))
    knobs = {key: drafting if value == DRAFT else value for key, value in flags.items() if key != "kv_dtype"}
    small = {"ctx": 2048} if knobs.get("c") == 0 else {}
    model = (
        tiny_gguf(architecture, hidden=128, **small) if architecture == "qwen2" else tiny_gguf(architecture, **small)
    )
    endpoint = Endpoint(
        contract=Contract(seqs=2, len=1500, kv_dtype=flags.get("kv_dtype", "f16")),
        engine=Engine(kind="llamacpp", version="b11434", binary=str(llama_server), knobs=knobs),
        model=ModelRef(path=str(model)),
        service=Service(listen="127.0.0.1:8177"),
    )
    facts = load_model(endpoint)
    now = assess(endpoint, Host(), facts)
    command = list(ADAPTER.command(endpoint).argv)
    command[command.index("--port") + 1] = "0"
    seen = boot(Path(command[0]), *command[1:])
    if now.problems:
        assert seen.code == 1, seen.log[-2000:]
        return
    assert seen.code is None, seen.log[-2000:]
    assert facts is not None
    assert now.kv is not None
    assert (DRAFT in flags.values()) == (now.draft is not None)

    settings = now.settings.kv
    wanted = printed(now.kv, settings.type_k, settings.type_v)
    if now.draft:
        wanted += printed(now.draft.kv, now.draft.settings.type_k, now.draft.settings.type_v)
    lines = _CACHE.findall(seen.log)
    assert len(lines) == len(wanted), seen.log[-3000:]
    for (size, cells, layers, _, streams, type_k, k, type_v, v), plan in zip(lines, wanted, strict=True):
        assert (int(cells), int(layers), int(streams), type_k, type_v) == plan[:5]
        for text, size_bytes in zip((size, k, v), plan[5:], strict=True):
            assert Interval.rounded(text, MIB).contains(size_bytes)
    assert int(_CONTEXT.findall(seen.log)[0]) == now.kv.tokens
    states = _STATES.findall(seen.log)
    assert len(states) == (now.kv.recurrent is not None)
    for size, cells in states:
        assert now.kv.recurrent is not None
        assert int(cells) == now.kv.recurrent.cells
        assert Interval.rounded(size, MIB).contains(now.kv.recurrent.bytes)
    held = facts.weight_bytes + (facts.draft.weight_bytes if facts.draft else 0)
    loaded = sum(map(float, _WEIGHTS.findall(seen.log))) * MIB
    assert loaded >= 0.99 * held - 0.02 * MIB  # a mapped buffer also counts what lies between its tensors


def with_multi_token_layer(path: Path) -> Path:
    """A qwen3next with one layer more, which drafts: the attention, experts and norms of the others, and its own."""
    shape = demo_gguf._Shape("qwen3next", 262_144, 4, 64, 128, 4, 2, 32, 1024, 0, "tiny-mtp")
    out, block = GgufWriter(), "blk.4."
    demo_gguf._describe(out, replace(shape, layers=5))
    out.u32("qwen3next.nextn_predict_layers", 1)
    demo_gguf._tokenizer(out, shape.arch)
    demo_gguf._tensors(out, shape)
    out.tensor(block + "attn_norm.weight", shape.hidden, fill="ones")
    demo_gguf._attention(out, shape, block)
    demo_gguf._norms(out, shape, block)
    demo_gguf._experts(out, shape, block)
    out.tensor(block + "nextn.eh_proj.weight", 2 * shape.hidden, shape.hidden)
    for name in ("enorm", "hnorm"):
        out.tensor(f"{block}nextn.{name}.weight", shape.hidden, fill="ones")
    path.write_bytes(b"".join(out.encode(0)))
    return path


@pytest.mark.parametrize("more", [{}, {"ctkd": "q8_0", "spec-draft-type-v": "q5_1", "kvu": True}], ids=str)
def test_multi_token_layers_have_a_cache_of_their_own(llama_server: Path, tmp_path: Path, more: dict[str, Any]) -> None:
    endpoint = Endpoint(
        contract=Contract(seqs=2, len=2500, kv_dtype="f16"),
        engine=Engine(
            kind="llamacpp", version="b11434", binary=str(llama_server), knobs={"spec-type": "draft-mtp", **more}
        ),
        model=ModelRef(path=str(with_multi_token_layer(tmp_path / "mtp.gguf"))),
        service=Service(listen="127.0.0.1:8177"),
    )
    now = assess(endpoint, Host(), load_model(endpoint))
    assert now.kv is not None
    assert now.draft is not None
    assert now.draft.model is None
    command = list(ADAPTER.command(endpoint).argv)
    command[command.index("--port") + 1] = "0"
    seen = boot(Path(command[0]), *command[1:])
    drafting = now.draft.settings
    wanted = printed(now.kv, "f16", "f16") + printed(now.draft.kv, drafting.type_k, drafting.type_v)
    lines = _CACHE.findall(seen.log)
    assert len(lines) == len(wanted) == 2, seen.log[-2000:]
    for (size, cells, layers, _, streams, type_k, _, type_v, _), plan in zip(lines, wanted, strict=True):
        assert (int(cells), int(layers), int(streams), type_k, type_v) == plan[:5]
        assert Interval.rounded(size, MIB).contains(plan[5])


def test_two_requests_that_each_fit_a_unified_cache_do_not_fit_together(
    llama_server: Path, tiny_gguf: Callable[..., Path], free_port: int
) -> None:
    """The plan says so before; the engine ends at least one of them with HTTP 500 once the cells are gone."""
    model = tiny_gguf("llama")
    endpoint = Endpoint(
        contract=Contract(seqs=2, len=1900, kv_dtype="f16"),
        engine=Engine(
            kind="llamacpp",
            version="b11434",
            binary=str(llama_server),
            knobs={"kvu": True, "c": 2048, "np": 2, "threads": 1},
        ),
        model=ModelRef(path=str(model)),
        service=Service(listen=f"127.0.0.1:{free_port}"),
    )
    plan = build_plan("e", endpoint, Host(ram_mib=64_000, available_mib=60_000), load_model(endpoint))
    assert plan.verdict == "short"
    assert plan.forecast.seq_len_limit == 2048  # each alone would fit
    assert any("HTTP 500" in note for note in plan.notes)

    def ask(_: int) -> int:
        body = {"prompt": "a" * 1000, "n_predict": 300, "ignore_eos": True, "cache_prompt": False}
        with suppress(httpx.HTTPError):
            return httpx.post(f"http://127.0.0.1:{free_port}/completion", json=body, timeout=120).status_code
        return 0

    with subprocess.Popen(ADAPTER.command(endpoint).argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as run:
        try:
            for _ in range(600):
                with suppress(httpx.HTTPError):
                    if httpx.get(f"http://127.0.0.1:{free_port}/health", timeout=5).status_code == 200:
                        break
                time.sleep(0.1)
            assert ask(0) == 200
            with ThreadPoolExecutor(2) as pool:
                assert 500 in pool.map(ask, range(2))
        finally:
            run.kill()
