"""The law of llama.cpp against the engine itself: cells exactly, bytes within the rounding of its log."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from archonctl.deployment.schema import Contract, Endpoint, Engine, KnobValue, ModelRef, Service
from archonctl.engines.llamacpp.adapter import ADAPTER
from archonctl.engines.llamacpp.assess import assess
from archonctl.engines.llamacpp.kv import KvSettings, allocate
from archonctl.engines.llamacpp.memory import Widths, compute_buffer
from archonctl.engines.llamacpp.refusals import refusals
from archonctl.host.profile import Host
from archonctl.memory.interval import MIB, Interval
from archonctl.model.gguf import read_gguf

pytestmark = pytest.mark.engine

ARCHITECTURES = ("llama", "qwen2", "qwen3", "qwen3moe", "gemma3", "deepseek2", "gpt-oss", "qwen3next")
TinyGguf = Callable[..., Path]


def tiny(make: TinyGguf, architecture: str) -> Path:
    """A model that loads; qwen2 knows no head size of its own, so that hidden must be heads x head size."""
    return make(architecture, hidden=128) if architecture == "qwen2" else make(architecture)


SETTINGS = (
    KvSettings(4096, 1),
    KvSettings(10_000, 3),
    KvSettings(32_768, 3),
    KvSettings(5000, 2),
    KvSettings(100, 4),
    KvSettings(8192, 2, kv_unified=True),
    KvSettings(10_001, 4, kv_unified=True),
    KvSettings(16_384, 2, type_k="q8_0", type_v="q8_0"),
    KvSettings(16_384, 4, type_k="q4_0", type_v="q4_0", kv_unified=True),
    KvSettings(12_288, 3, type_k="q8_0", type_v="q4_0"),
    KvSettings(8192, 1, type_k="bf16", type_v="f32"),
    KvSettings(8192, 2, type_k="q5_1", type_v="iq4_nl"),
    KvSettings(8192, 2, type_k="q4_1", type_v="q5_0"),
    KvSettings(16_384, 2, n_ubatch=2048),
    KvSettings(16_384, 2, n_ubatch=64, n_batch=128, kv_unified=True),
    KvSettings(16_384, 2, swa_full=True),
    KvSettings(8192, 2, flash_attn=False),
    KvSettings(8192, 2, type_k="q8_0", flash_attn=False),
    KvSettings(65_536, 1),
    KvSettings(4096, 2, slot_cap=1000),
)

_SIZE = re.compile(
    r"llama_kv_cache: size = +([\d.]+) MiB \( *(\d+) cells, +(\d+) layers, +(\d+)/(\d+) seqs\), "
    r"K \((\w+)\): +([\d.]+) MiB, V \((\w+)\): +([\d.]+) MiB"
)
_RECURRENT = re.compile(
    r"llama_memory_recurrent: size = +([\d.]+) MiB \( *(\d+) cells, +(\d+) layers, +(\d+) seqs.*?"
    r"R \(f32\): +([\d.]+) MiB, S \(f32\): +([\d.]+) MiB"
)
_FIGURE = {name: re.compile(rf"llama_context: {name} += (\d+)") for name in ("n_ctx", "n_ctx_seq", "n_ubatch")}
_SLOT = re.compile(r"initializing, n_slots = (\d+), n_ctx_slot = (\d+)")
_COMPUTE = re.compile(r"sched_reserve: +CPU compute buffer size = +([\d.]+) MiB")


@dataclass(frozen=True)
class Boot:
    """One boot: its log up to the slots, or up to its end if it did not get there."""

    log: str
    code: int | None

    def figure(self, pattern: re.Pattern[str], group: int = 1) -> int:
        found = pattern.search(self.log)
        assert found, f"{pattern.pattern} is not in the log:\n{self.log[-2000:]}"
        return int(found[group])


def boot(binary: Path, *arguments: str) -> Boot:
    """Start the engine, read its log until the slots are known or it ends, and stop it."""
    lines: list[str] = []
    command = [str(binary), "--host", "127.0.0.1", "--port", "0", "--no-warmup", *arguments]
    if not any(word in arguments for word in ("-lv", "--verbosity")):
        command += ["-lv", "4"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            for line in process.stderr:
                lines.append(line)
                if _SLOT.search(line):
                    return Boot("".join(lines), None)
            return Boot("".join(lines), process.wait(timeout=30))
        finally:
            process.kill()


def flags(settings: KvSettings) -> list[str]:
    """The settings as flags."""
    words = ["-c", str(settings.n_ctx), "-np", str(settings.n_seq_max), "-b", str(settings.n_batch)]
    words += ["-ub", str(settings.n_ubatch), "-ctk", settings.type_k, "-ctv", settings.type_v]
    words += ["-fa", "auto" if settings.flash_attn else "off"]
    words += ["--kv-unified"] if settings.kv_unified else []
    words += ["--swa-full"] if settings.swa_full else []
    words += ["--kv-unified-per-slot", str(settings.slot_cap)] if settings.slot_cap else []
    return words


def printed(text: str) -> Interval:
    """A figure of the log in bytes, with its rounding."""
    return Interval.rounded(text, MIB)


def label(settings: KvSettings) -> str:
    default = KvSettings(0, 1)
    names = ("n_batch", "n_ubatch", "kv_unified", "type_k", "type_v", "swa_full", "flash_attn", "slot_cap")
    rest = (f"{n}={getattr(settings, n)}" for n in names if getattr(settings, n) != getattr(default, n))
    return "-".join((f"c{settings.n_ctx}", f"np{settings.n_seq_max}", *rest))


@pytest.mark.parametrize("settings", SETTINGS, ids=label)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_law_says_what_the_boot_log_says(
    llama_server: Path, tiny_gguf: TinyGguf, architecture: str, settings: KvSettings
) -> None:
    path = tiny(tiny_gguf, architecture)
    model = read_gguf(path)
    geometry = model.geometry
    assert geometry is not None
    seen = boot(llama_server, "-m", str(path), *flags(settings))

    if refused := refusals(geometry, settings):
        assert seen.code == 1, f"{refused[0].code} was expected to end the boot:\n{seen.log[-2000:]}"
        return
    assert seen.code is None, seen.log[-2000:]
    law = allocate(geometry, settings)

    assert seen.figure(_FIGURE["n_ctx"]) == law.shape.n_ctx == law.tokens
    assert seen.figure(_FIGURE["n_ctx_seq"]) == law.shape.n_ctx_seq
    assert seen.figure(_FIGURE["n_ubatch"]) == law.shape.n_ubatch
    assert seen.figure(_SLOT, 1) == settings.n_seq_max
    assert seen.figure(_SLOT, 2) == law.shape.n_ctx_slot

    caches = list(_SIZE.finditer(seen.log))
    assert len(caches) == len(law.caches)
    for line, cache in zip(caches, law.caches, strict=True):
        size, cells, layers, seqs, streams, type_k, k_size, type_v, v_size = line.groups()
        assert (int(cells), int(layers), int(streams)) == (cache.cells, cache.layers, cache.streams)
        assert (int(seqs), type_k, type_v) == (settings.n_seq_max, settings.type_k, settings.type_v)
        assert printed(size).contains(cache.bytes)
        assert printed(k_size).contains(cache.k_bytes)
        assert printed(v_size).contains(cache.v_bytes)

    state = _RECURRENT.search(seen.log)
    assert bool(state) == bool(law.recurrent)
    if state and law.recurrent:
        assert (int(state[2]), int(state[3])) == (law.recurrent.cells, law.recurrent.layers)
        assert printed(state[1]).contains(law.recurrent.bytes)
        assert printed(state[5]).contains(law.recurrent.r_bytes)
        assert printed(state[6]).contains(law.recurrent.s_bytes)

    widths = Widths.of(model, geometry)
    assert widths is not None
    compute = compute_buffer(geometry, widths, settings, law)
    found = _COMPUTE.search(seen.log)
    assert found
    assert compute.low <= printed(found[1]).high
    assert printed(found[1]).low <= compute.high


ORACLE = [
    (architecture, settings)
    for architecture in ARCHITECTURES
    for settings in (SETTINGS[1], SETTINGS[7], SETTINGS[11], SETTINGS[15], SETTINGS[16])
    if architecture != "deepseek2" or settings.type_k == settings.type_v
]
"""Without a unified cache or slots, which the oracle does not know, and without what would not start."""


@pytest.mark.parametrize(("architecture", "settings"), ORACLE, ids=lambda x: x if isinstance(x, str) else label(x))
def test_the_law_says_what_the_engines_own_oracle_says(
    llama_fit_params: Path, tiny_gguf: TinyGguf, architecture: str, settings: KvSettings
) -> None:
    path = tiny(tiny_gguf, architecture)
    geometry = read_gguf(path).geometry
    assert geometry is not None
    command = [str(llama_fit_params), "-m", str(path), *flags(settings), "-fitp", "on"]
    answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.split()
    assert int(answer[2]) == allocate(geometry, settings).bytes // MIB


@pytest.mark.parametrize("unified", [False, True])
def test_a_slot_never_holds_more_than_the_model_was_trained_for(
    llama_server: Path, tiny_gguf: TinyGguf, unified: bool
) -> None:
    path = tiny_gguf("llama", ctx=4096)
    geometry = read_gguf(path).geometry
    assert geometry is not None
    settings = KvSettings(20_000, 2, kv_unified=unified)
    seen = boot(llama_server, "-m", str(path), *flags(settings))
    assert seen.figure(_FIGURE["n_ctx"]) == allocate(geometry, settings).tokens == (20_224 if unified else 20_480)
    assert seen.figure(_SLOT, 2) == allocate(geometry, settings).shape.n_ctx_slot == 4096


REAL = {
    "llama-3-8b": ("llama", {"layers": 32, "kv_heads": 8, "heads": 8, "head_dim": 128}, (4096, 2176, 16_384)),
    "qwen3-32b": ("qwen3", {"layers": 64, "kv_heads": 8, "heads": 8, "head_dim": 128}, (8192, 4352, 32_768)),
    "gemma-3-27b": ("gemma3", {"layers": 62, "kv_heads": 16, "heads": 16, "head_dim": 128}, (3184, 1691, 10_864)),
    "gpt-oss-20b": ("gpt-oss", {"layers": 24, "kv_heads": 8, "heads": 8, "head_dim": 64}, (786, 417, 3090)),
    "deepseek-v3": ("deepseek2", {"layers": 61}, (2196, 1166, 8784)),
}
"""Real KV geometries with tiny weights, and MiB of context at 32,768 f16, 32,768 q8_0 and 131,072 f16."""


@pytest.mark.parametrize("name", REAL)
def test_real_geometries_cost_what_the_oracle_says(llama_fit_params: Path, tiny_gguf: TinyGguf, name: str) -> None:
    architecture, shape, wanted = REAL[name]
    path = tiny_gguf(architecture, hidden=16 if architecture != "deepseek2" else 64, ff=16, ctx=131_072, **shape)
    geometry = read_gguf(path).geometry
    assert geometry is not None
    q8 = {"type_k": "q8_0", "type_v": "q8_0"}
    settings = (KvSettings(32_768, 1), replace(KvSettings(32_768, 1), **q8), KvSettings(131_072, 1))
    for one, mib in zip(settings, wanted, strict=True):
        command = [str(llama_fit_params), "-m", str(path), *flags(one), "-fitp", "on"]
        answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.split()
        assert int(answer[2]) == allocate(geometry, one).bytes // MIB == mib


def endpoint(path: Path, binary: Path, knobs: dict[str, KnobValue], **contract: object) -> Endpoint:
    return Endpoint(
        contract=Contract.model_validate({"seqs": 3, "len": 3000, **contract}),
        engine=Engine(kind="llamacpp", version="b11434", binary=str(binary), knobs=knobs),
        model=ModelRef(path=str(path), served_name="tiny"),
        service=Service(listen="127.0.0.1:8177"),
    )


KNOBS: tuple[dict[str, KnobValue], ...] = (
    {},
    {"ctx-size": 8192},
    {"c": 8192, "np": 2},
    {"np": -1},
    {"kvu": True, "swa-full": True},
    {"ctx-size": 0},
    {"ctx-size": 0, "fit": "off"},
    {"ctx-size": 600_000, "np": 1, "cache-type-k": "f16"},
    {"rope-scaling": "yarn", "rope-scale": 2, "ctx-size": 400_000, "np": 1},
    {"rope-scaling": "linear", "rope-scale": 2, "ctx-size": 400_000, "np": 1},
    {"rope-freq-scale": 0.5, "rope-scaling": "yarn", "yarn-orig-ctx": 10_000, "np": 2},
    {"override-kv": "llama.context_length=int:2048"},
    {"kv-unified-per-slot": 1234, "kv-unified": True, "ub": 128},
    {"threads": 2, "cache-ram": 0, "ctx-checkpoints": 2, "temp": 0.5, "no-webui": True, "fa": "off", "lv": 5},
)


@pytest.mark.parametrize("knobs", KNOBS, ids=str)
def test_a_rendered_command_boots_and_gives_what_the_forecast_said(
    llama_server: Path, tiny_gguf: TinyGguf, knobs: dict[str, KnobValue]
) -> None:
    path = tiny_gguf("llama")
    declared = endpoint(path, llama_server, knobs)
    forecast = ADAPTER.forecast(declared, Host(ram_mib=65_536), read_gguf(path))
    command = list(ADAPTER.command(declared).argv)
    command[command.index("--port") + 1] = "0"
    seen = boot(Path(command[0]), *command[1:])

    assert seen.code is None, seen.log[-2000:]
    assert forecast.kv_tokens is not None
    assert seen.figure(_FIGURE["n_ctx"]) == forecast.kv_tokens.best
    assert seen.figure(_SLOT, 1) == forecast.seqs_limit
    assert seen.figure(_SLOT, 2) == forecast.seq_len_limit


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("dtype", ["f16", "q8_0", "f16/bf16"])
def test_what_is_derived_from_the_contract_holds_it(
    llama_server: Path, tiny_gguf: TinyGguf, architecture: str, dtype: str
) -> None:
    path = tiny(tiny_gguf, architecture)
    declared = endpoint(path, llama_server, {}, kv_dtype=dtype, margin=0.01)
    now = assess(declared, Host(), read_gguf(path))
    command = list(ADAPTER.command(declared).argv)
    command[command.index("--port") + 1] = "0"
    seen = boot(Path(command[0]), *command[1:])
    if now.problems:
        assert seen.code == 1
    else:
        assert now.holds
        assert seen.figure(_SLOT, 1) == 3
        assert seen.figure(_SLOT, 2) >= 3000


@pytest.mark.parametrize(
    "knobs", [{"np": 257, "c": 65_792}, {"c": 2**31}, {"fa": "off", "ctk": "q8_0", "ctv": "q8_0"}], ids=str
)
def test_what_the_law_refuses_the_engine_refuses(
    llama_server: Path, tiny_gguf: TinyGguf, knobs: dict[str, KnobValue]
) -> None:
    path = tiny_gguf("llama")
    declared = endpoint(path, llama_server, knobs, kv_dtype="q8_0" if "ctk" in knobs else "f16")
    assert assess(declared, Host(), read_gguf(path)).problems
    command = list(ADAPTER.command(declared).argv)
    assert boot(Path(command[0]), *command[1:]).code == 1


def test_a_checkpoint_is_as_large_as_the_law_says(llama_server: Path, tiny_gguf: TinyGguf, free_port: int) -> None:
    """Seen as "created context checkpoint ... size = 1.262 MiB": the window's rows and a few bytes a cell."""
    import json
    import urllib.request

    path = tiny_gguf("gemma3")
    now = assess(endpoint(path, llama_server, {}), Host(), read_gguf(path))
    command = [str(llama_server), "-m", str(path), "--port", str(free_port), "-lv", "4", "-c", "8192", "-np", "1"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            for line in process.stderr:
                if "server is listening" in line or "listening on http" in line:
                    break
            body = json.dumps({"messages": [{"role": "user", "content": "a" * 3000}], "max_tokens": 1}).encode()
            url = f"http://127.0.0.1:{free_port}/v1/chat/completions"
            request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
            with urllib.request.urlopen(request, timeout=60):
                pass
            process.terminate()
            sizes = re.findall(r"created context checkpoint .* size = ([\d.]+) MiB", process.stderr.read())
        finally:
            process.kill()
    assert sizes
    assert now.checkpoint_bytes <= float(sizes[-1]) * MIB <= now.checkpoint_bytes * 1.02
