"""Whole boot logs of real engines as test data: which boots, how each is made, and where the logs are kept.

``scripts/collect-boots`` makes them again. A log is kept whole; what named the machine that made it is replaced
(paths, addresses), so that a boot on another one differs in its times and process ids alone.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from support.ports import free

FOLDER = Path(__file__).resolve().parent.parent / "golden" / "boots"
MODEL = "/models/tiny"


@dataclass(frozen=True)
class BootCase:
    """One boot: the model (architecture and figures of the tiny writers) and the arguments after host and port."""

    id: str
    engine: str
    arch: str
    argv: tuple[str, ...]
    geometry: Mapping[str, int] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    draft: bool = False
    """True where the model itself is also given as the draft model."""


@dataclass(frozen=True)
class BootRecord:
    """One boot as it went. ``status`` is the exit status: 0 after a stop, None where it had to be killed."""

    case: BootCase
    version: str
    ready: bool
    status: int | None
    log: str


# ------------------------------------------------------------------------------------------------ which boots
LLAMA_ARCHS = ("llama", "qwen2", "qwen3", "qwen3moe", "gemma3", "deepseek2", "gpt-oss", "qwen3next")
_LLAMA_FLAGS: Mapping[str, str] = {
    "unified": "-c 8192 -lv 4",
    "streams": "-c 8192 -np 2 -lv 4",
    "rounded": "-c 10000 -np 3 -lv 4",
    "unified-asked": "-c 8192 -np 2 -kvu -lv 4",
    "quantised": "-c 8192 -np 1 -ctk q8_0 -ctv q8_0 -lv 4",
    "dry-run-first": "-c 8192 -np 1 -lv 5",
    "json-lines": "-c 8192 -np 2 -lv 4 --log-jsonl",
    "large-batch": "-c 16384 -np 1 -b 4096 -ub 2048 --swa-full -lv 4",
    "quiet": "-c 8192 -np 2",
}
_LLAMA_OTHERS: tuple[BootCase, ...] = (
    BootCase("llama-draft", "llamacpp", "llama", ("-c", "8192", "-np", "1", "-lv", "5"), draft=True),
    BootCase("llama-over-trained", "llamacpp", "llama", ("-c", "8192", "-np", "1", "-lv", "4"), {"ctx": 2048}),
    BootCase("llama-timestamps", "llamacpp", "qwen3", ("-c", "8192", "-lv", "4", "--log-timestamps", "--log-prefix")),
    BootCase(
        "llama-mixed-cache", "llamacpp", "qwen3", ("-c", "8192", "-np", "1", "-ctk", "q8_0", "-ctv", "q4_0", "-lv", "4")
    ),
    BootCase("llama-unknown-flag", "llamacpp", "llama", ("--no-such-flag",)),
    BootCase("llama-removed-flag", "llamacpp", "llama", ("--draft", "16")),
    BootCase("llama-bad-type", "llamacpp", "llama", ("-ctk", "int3")),
    BootCase("llama-v-needs-flash", "llamacpp", "llama", ("-fa", "off", "-ctv", "q8_0", "-lv", "4")),
)
_LLAMA_MORE: Mapping[str, tuple[str, str]] = {
    "sixteen-slots": ("llama", "-c 65536 -np 16 -lv 4"),
    "sixty-four-slots": ("qwen3", "-c 65536 -np 64 -lv 4"),
    "rounded-up-by-slots": ("qwen3moe", "-c 4097 -np 5 -lv 4"),
    "unified-five": ("gemma3", "-c 5000 -np 5 -kvu -lv 4"),
    "streams-asked": ("gemma3", "-c 9000 -np 4 -no-kvu -lv 4"),
    "trained-length": ("qwen3", "-c 0 -np 2 -lv 4"),
    "no-fit": ("qwen3", "-c 12000 -np 2 -fit off -lv 4"),
    "no-fit-dry": ("gpt-oss", "-c 12000 -np 2 -fit off -lv 5"),
    "cache-q4": ("qwen3", "-c 8192 -np 2 -ctk q4_0 -ctv q4_0 -lv 4"),
    "cache-q5": ("llama", "-c 8192 -np 2 -ctk q5_1 -ctv q5_0 -lv 4"),
    "cache-bf16": ("qwen3moe", "-c 8192 -np 2 -ctk bf16 -ctv bf16 -lv 4"),
    "cache-f32": ("gemma3", "-c 8192 -np 2 -ctk f32 -ctv f32 -lv 4"),
    "cache-keys-only": ("gpt-oss", "-c 8192 -np 2 -ctk q8_0 -lv 4"),
    "window-full": ("gemma3", "-c 16384 -np 4 --swa-full -lv 4"),
    "window-full-unified": ("gpt-oss", "-c 16384 -np 4 -kvu --swa-full -lv 4"),
    "small-batch": ("gemma3", "-c 16384 -np 2 -b 256 -ub 128 -lv 4"),
    "no-flash": ("llama", "-c 8192 -np 2 -fa off -lv 4"),
    "locked": ("llama", "-c 8192 -np 2 --load-mode mlock -lv 4"),
    "unmapped": ("qwen3", "-c 8192 -np 2 --load-mode none -lv 4"),
    "verbosity-three": ("qwen3", "-c 8192 -np 3 -lv 3"),
    "most-verbose": ("deepseek2", "-c 8192 -np 4 -lv 5 --log-timestamps --log-prefix"),
    "no-prefix": ("gemma3", "-c 8192 -np 2 -lv 4 --no-log-prefix --no-log-timestamps"),
    "coloured": ("qwen3next", "-c 8192 -np 2 -lv 4 --log-colors on"),
    "json-lines-dry": ("gpt-oss", "-c 8192 -np 3 -lv 5 --log-jsonl"),
    "json-lines-unified": ("qwen3next", "-c 10000 -np 3 -kvu -lv 4 --log-jsonl"),
    "no-prompt-cache": ("qwen3", "-c 8192 -np 2 -cram 0 -lv 4"),
    "cache-on-host": ("qwen3moe", "-c 8192 -np 2 -nkvo -lv 4"),
    "trained-hundredfold": ("llama", "-c 2000000 -np 2 -ctk q4_0 -ctv q4_0 -lv 4"),
    "no-such-file": ("llama", "-c 8192 --mmproj /models/none.gguf -lv 4"),
    "value-missing": ("llama", "-np 2 -c"),
    "no-such-device": ("llama", "-c 8192 -dev CUDA0 -lv 4"),
    "slots-not-a-number": ("llama", "-c 8192 -np many"),
}
_EAGER = ("--enforce-eager", "--load-format", "dummy")


def _vllm(name: str, arch: str, flags: str, space_gib: int = 1, **geometry: int) -> BootCase:
    env = {"VLLM_CPU_KVCACHE_SPACE": f"{space_gib}"}
    if "parallel-size" in flags:
        env["VLLM_CPU_OMP_THREADS_BIND"] = "0|1"  # else a rank wants a NUMA node of its own
    return BootCase(f"vllm-{name}", "vllm", arch, (*flags.split(), *_EAGER), geometry, env)


_VLLM: tuple[BootCase, ...] = (
    _vllm("dense", "qwen3", "--max-model-len 8192"),
    _vllm("dense-fp8", "qwen3", "--max-model-len 8192 --kv-cache-dtype fp8"),
    _vllm("sliding", "gemma3", "--max-model-len 32768", layers=6),
    _vllm("latent", "deepseek2", "--max-model-len 32768"),
    _vllm("llama-8b-geometry", "llama", "--max-model-len 4096", 2, layers=32, heads=8, kv_heads=8, head_dim=128),
    _vllm("two-ranks", "qwen3", "--max-model-len 8192 --tensor-parallel-size 2"),
    _vllm("too-small", "llama", "--max-model-len 262144", layers=24),
    _vllm("sliding-uneven", "gemma3", "--max-model-len 16384 --max-num-seqs 4", layers=8, window=512),
    _vllm("half-sliding", "gpt-oss", "--max-model-len 32768"),
    _vllm("experts", "qwen3moe", "--max-model-len 16384 --max-num-seqs 3"),
    _vllm("auto-length", "llama", "--max-model-len auto", layers=24),
    _vllm("block-64", "qwen3", "--max-model-len 8192 --block-size 64"),
    _vllm("blocks-override", "qwen3", "--max-model-len 8192 --num-gpu-blocks-override 100"),
    _vllm("kv-bytes", "qwen3", "--max-model-len 8192 --kv-cache-memory-bytes 805306368"),
    _vllm("no-prefix-caching", "llama", "--max-model-len 20000 --no-enable-prefix-caching", 2, layers=3, kv_heads=1),
    _vllm("sliding-fp8", "gemma3", "--max-model-len 32768 --kv-cache-dtype fp8", layers=6),
    _vllm("two-stages", "qwen3", "--max-model-len 8192 --pipeline-parallel-size 2"),
    _vllm("unknown-flag", "qwen3", "--max-model-len 8192 --swap-space 4"),
    _vllm("over-trained", "qwen3", "--max-model-len 300000"),
    _vllm("debug", "qwen3", "--max-model-len 8192"),
    _vllm("hybrid", "qwen3next", "--max-model-len 8192"),
    _vllm("hybrid-no-prefix-caching", "qwen3next", "--max-model-len 8192 --no-enable-prefix-caching", layers=8),
    # what others met, made again
    _vllm("memory-taken", "qwen3", "--max-model-len 8192", 4000),
    _vllm("no-cache-memory", "qwen3", "--max-model-len 8192", 0),
    BootCase("vllm-memory-share-taken", "vllm", "qwen3", ("--max-model-len", "8192", *_EAGER)),
    _vllm("blocks-too-few", "qwen3", "--max-model-len 8192 --num-gpu-blocks-override 10"),
    _vllm("removed-flag", "qwen3", "--max-model-len 8192 --enable-reasoning --reasoning-parser qwen3"),
    BootCase("vllm-joined-words", "vllm", "qwen3", ("--dtype auto", "--max-model-len", "8192", *_EAGER)),
    _vllm("cache-type-unknown", "qwen3", "--max-model-len 8192 --kv-cache-dtype int3"),
    _vllm("length-no-number", "qwen3", "--max-model-len many"),
    _vllm("heads-uneven", "qwen3", "--max-model-len 8192 --tensor-parallel-size 3"),
    _vllm(
        "batch-below-length", "qwen3", "--max-model-len 8192 --max-num-batched-tokens 100 --no-enable-chunked-prefill"
    ),
    _vllm("quantisation-unknown", "qwen3", "--max-model-len 8192 --quantization none-such"),
    _vllm("no-tokenizer", "qwen3", "--max-model-len 8192 --tokenizer /models/none"),
    _vllm(
        "no-draft-model",
        "qwen3",
        '--max-model-len 8192 --speculative-config {"model":"/models/none","num_speculative_tokens":3}',
    ),
    BootCase(
        "vllm-no-weights",
        "vllm",
        "qwen3",
        ("--max-model-len", "8192", "--enforce-eager"),
        env={"VLLM_CPU_KVCACHE_SPACE": "1"},
    ),
    BootCase("vllm-no-such-device", "vllm", "qwen3", ("--max-model-len", "8192", "--device", "cuda", *_EAGER)),
)


def cases(engine: str) -> list[BootCase]:
    """All boots of one engine ("llamacpp", "vllm"), or of its cache law ("vllm-kv")."""
    if engine == "vllm-kv":
        from support.kv_boots import CASES

        return list(CASES)
    if engine == "vllm":
        return [
            BootCase(c.id, c.engine, c.arch, c.argv, c.geometry, {**c.env, "VLLM_LOGGING_LEVEL": "DEBUG"})
            if c.id == "vllm-debug"
            else c
            for c in _VLLM
        ]
    return [
        BootCase(f"llama-{arch}-{name}", "llamacpp", arch, tuple(flags.split()))
        for arch in LLAMA_ARCHS
        for name, flags in _LLAMA_FLAGS.items()
        if not (arch == "deepseek2" and name == "quantised")  # the latent cache of a head of 32 has no such type
    ] + [
        *_LLAMA_OTHERS,
        *(
            BootCase(f"llama-{name}", "llamacpp", arch, tuple(flags.split()))
            for name, (arch, flags) in _LLAMA_MORE.items()
        ),
    ]


# ------------------------------------------------------------------------------------------------ making them
def make_model(case: BootCase, folder: Path) -> Path:
    """The model of a case, under ``folder``."""
    if case.engine == "vllm":
        from support.tiny_hf import write_tiny_hf

        return write_tiny_hf(folder / case.id, case.arch, **case.geometry)
    from support.tiny_gguf import write_tiny_gguf

    path = folder / f"{case.id}.gguf"
    options = {"hidden": 128} if case.arch == "qwen2" else {}
    write_tiny_gguf(path, case.arch, **{**options, **case.geometry})
    return path


def boot(case: BootCase, program: Path, folder: Path, seconds: float = 600) -> BootRecord:
    """Start one engine until it serves or is gone, stop it, and give its log."""
    model = make_model(case, folder)
    port = free()
    log = folder / f"{case.id}.log"
    with log.open("wb") as sink:
        server = subprocess.Popen(
            _argv(case, program, model, port),
            stdout=sink,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            env={**os.environ, "HF_HUB_OFFLINE": "1", "NO_COLOR": "1", **case.env},
        )
        try:
            ready = _wait(server, port, seconds)
            server.terminate()
            server.wait(60)
        except subprocess.TimeoutExpired:
            pass
        finally:
            status = server.poll()
            if status is None:
                os.killpg(server.pid, signal.SIGKILL)
                server.wait()
    text = log.read_text("utf-8", "replace")
    return BootRecord(case, _version(case.engine, program), ready, status, scrubbed(text, model, program, port))


def _argv(case: BootCase, program: Path, model: Path, port: int) -> list[str]:
    listen = ["--host", "127.0.0.1", "--port", str(port)]
    if case.engine == "vllm":
        return [str(program), "serve", str(model), *listen, *case.argv]
    draft = ["-md", str(model)] if case.draft else []
    return [str(program), "-m", str(model), *draft, *listen, *case.argv]


def _wait(server: subprocess.Popen[bytes], port: int, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while server.poll() is None and time.monotonic() < end:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
                if answer.status == 200 and server.poll() is None:
                    return True
        except (urllib.error.URLError, OSError):
            pass
        time.sleep(0.05 if "llama" in str(server.args) else 1)
    return False


def _version(engine: str, program: Path) -> str:
    if engine == "vllm":
        found = sorted(program.resolve().parent.parent.glob("lib/python*/site-packages/vllm*-*.dist-info"))
        return found[0].name.removesuffix(".dist-info").rpartition("-")[2] if found else ""
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stderr
    match = re.search(r"build (\d+)", said)
    return f"b{match.group(1)}" if match else ""


def scrubbed(text: str, model: Path, program: Path, port: int) -> str:
    """A log without what names the machine that made it."""
    suffix = model.suffix
    venv = program.parent.parent
    places = {str(model): MODEL + suffix, str(program): f"/opt/engine/{program.name}", str(venv): "/opt/engine"}
    for place, neutral in places.items():
        text = text.replace(place, neutral)
    text = text.replace(str(Path(sys.prefix)), "/usr").replace(str(Path.home()), "/home/engine")
    text = re.sub(r"/root/\.pyenv/versions/[\d.]+", "/usr", text)
    text = re.sub(r"(?<=_ip=)\d{1,3}(?:\.\d{1,3}){3}", "192.0.2.1", text)
    return re.sub(rf"(?<=:|=|\s){port}\b", "8000", text).replace(f"'port': {port}", "'port': 8000")


# ------------------------------------------------------------------------------------------------ keeping them
def write_records(path: Path, records: Iterable[BootRecord]) -> None:
    """One JSON object a line, compressed; the same records give the same bytes."""
    text = "".join(json.dumps(asdict(record), sort_keys=True) + "\n" for record in records)
    path.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def read_records(path: Path) -> list[BootRecord]:
    """Records as they were written."""
    found = []
    for line in gzip.decompress(path.read_bytes()).decode().splitlines():
        raw = json.loads(line)
        case = raw.pop("case")
        found.append(BootRecord(BootCase(**{**case, "argv": tuple(case["argv"])}), **raw))
    return found


def main(arguments: Sequence[str]) -> int:
    """``collect-boots ENGINE PROGRAM [CASE...]``: boot all cases of an engine (or those named) and keep the logs."""
    import tempfile

    engine, program, wanted = arguments[0], Path(arguments[1]).absolute(), set(arguments[2:])
    path = FOLDER / f"{engine.replace('-', '_')}.jsonl.gz"
    kept = {r.case.id: r for r in read_records(path)} if path.exists() else {}
    everything = cases(engine)
    for case in everything:
        if wanted and case.id not in wanted:
            continue
        with tempfile.TemporaryDirectory(prefix="boot-") as folder:
            kept[case.id] = record = boot(case, program, Path(folder))
        print(f"{case.id}: ready={record.ready} status={record.status} {len(record.log)} characters", flush=True)
        write_records(path, [kept[c.id] for c in everything if c.id in kept])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
