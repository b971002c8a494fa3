"""Other calculators beside `archonctl plan`, on the same config.json in the same run: their time and their answer.

usage: .venv/bin/python benchmarks/calculators.py [FOLDER] [ROUNDS]

FOLDER holds the programs of the others (default: where this Python is). They come from PyPI:
`python -m venv /tmp/others && /tmp/others/bin/pip install hf-vram-calc llm-mem-planner gguf-parser gguf`. What is not
there is left out. Printed: seconds from a cold process, GiB of cache for one request of 8,192 tokens, and ratios to
archonctl's; then the same for reading the header of a 61-layer, 384-expert GGUF.
"""

from __future__ import annotations

import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from plan_largest_moe import COMPILED, write_header

GIB = 1024**3
LENGTH = 8192
POOL = 60 * GIB
ARCHONCTL = Path(sys.executable).with_name("archonctl")
BASE = {"vocab_size": 129_280, "torch_dtype": "bfloat16", "rms_norm_eps": 1e-6, "max_position_embeddings": 131_072}
MODELS: dict[str, dict[str, object]] = {
    "Llama-3.1-8B": {
        **BASE,
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 4096,
        "intermediate_size": 14_336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "hidden_act": "silu",
    },
    "Gemma-3-27B": {
        **BASE,
        "architectures": ["Gemma3ForCausalLM"],
        "model_type": "gemma3_text",
        "hidden_size": 5376,
        "intermediate_size": 21_504,
        "num_hidden_layers": 62,
        "num_attention_heads": 32,
        "num_key_value_heads": 16,
        "head_dim": 128,
        "sliding_window": 1024,
        "sliding_window_pattern": 6,
        "hidden_activation": "gelu_pytorch_tanh",
    },
    "DeepSeek-V3": {
        **BASE,
        "architectures": ["DeepseekV3ForCausalLM"],
        "model_type": "deepseek_v3",
        "hidden_size": 7168,
        "intermediate_size": 18_432,
        "moe_intermediate_size": 2048,
        "num_hidden_layers": 61,
        "num_attention_heads": 128,
        "num_key_value_heads": 128,
        "n_routed_experts": 256,
        "n_shared_experts": 1,
        "num_experts_per_tok": 8,
        "first_k_dense_replace": 3,
        "kv_lora_rank": 512,
        "q_lora_rank": 1536,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "hidden_act": "silu",
    },
}
DECLARED = """
contract = {{ seqs = 1, len = {length}, kv_dtype = "f16" }}
engine = {{ kind = "vllm", version = "0.32.0", binary = "/x", knobs = {{ kv-cache-memory-bytes = {pool} }} }}
model = {{ path = "{model}" }}
host = {{ profile = "{host}" }}
"""


def timed(command: list[str], rounds: int) -> tuple[float, str]:
    """Median seconds of one run, and what the last one said on both streams."""
    times, said = [], ""
    subprocess.run(command, capture_output=True, check=False, timeout=300, env=COMPILED)
    for _ in range(rounds):
        began = time.perf_counter()
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, env=COMPILED)
        times.append(time.perf_counter() - began)
        said = done.stdout + done.stderr
    return statistics.median(times), said


def ours(text: str) -> float:
    """GiB of a request, from the tokens of a pool of known size."""
    return POOL / GIB * LENGTH / int(json.loads(text)["capacity"]["kv_tokens"])


def figure(pattern: str) -> Callable[[str], float]:
    """The first number that a tool prints after a word of its own; NaN where it refuses."""

    def read(text: str) -> float:
        found = re.search(pattern, text)
        return float(found[1]) if found else float("nan")

    return read


def tools(folder: Path, model: Path, declared: Path) -> dict[str, tuple[list[str], Callable[[str], float]]]:
    """Commands that are there, and how their answer is read."""
    size = ["--max_batch_size", "1", "--max_seq_len", str(LENGTH)]
    every = {
        "archonctl plan": ([str(ARCHONCTL), "plan", str(declared), "--json"], ours),
        "llm-mem-planner": (
            [
                *(str(folder / "llm-mem-planner"), "--config", str(model / "config.json"), "--seq-len", str(LENGTH)),
                *("--batch", "1", "--kv-dtype", "bf16", "--weight-dtype", "bf16"),
            ],
            figure(r"kv_per_rank=([\d.]+) GiB"),
        ),
        "hf-vram-calc": (
            [str(folder / "hf-vram-calc"), "--model", model.name, "--model_path", str(model), "--dtype", "bf16", *size],
            figure(r"BF16 +│ +[\d.]+ │ +[\d.]+ │ +([\d.]+)"),
        ),
    }
    return {name: row for name, row in every.items() if Path(row[0][0]).exists()}


def compare(name: str, rows: dict[str, tuple[float, float]]) -> None:
    """One table; the first row is ours."""
    print(f"\n{name:32} {'seconds':>8} {'times ours':>10} {'GiB':>8} {'times ours':>10}")
    first = next(iter(rows.values()))
    for tool, (seconds, gib) in rows.items():
        size = f"{gib:8.3f} {gib / first[1]:10.2f}" if gib == gib else f"{'refused':>8}"
        print(f"{tool:32} {seconds:8.2f} {seconds / first[0]:10.1f} {size}")


def main() -> None:
    """Print the tables."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(sys.executable).parent
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        host, declared = root / "host.toml", root / "endpoint.toml"
        host.write_text('ram_mib = 500000\n[[cards]]\nindex = 0\nname = "c"\ntotal_mib = 2000000\n')
        for model, config in MODELS.items():
            path = root / model
            path.mkdir()
            (path / "config.json").write_text(json.dumps(config))
            declared.write_text(DECLARED.format(length=LENGTH, pool=POOL, model=path, host=host))
            rows = {}
            for tool, (command, read) in tools(folder, path, declared).items():
                seconds, said = timed(command, rounds)
                rows[tool] = (seconds, read(said))
            compare(f"{model}, one request", rows)
        header = root / "k2.gguf"
        write_header(header)
        python = str(folder / "python")
        readers = {
            "archonctl inspect": [str(ARCHONCTL), "inspect", str(header), "--json"],
            "gguf": [python, "-c", f"import gguf; gguf.GGUFReader({str(header)!r})"],
            "gguf-parser": [python, "-c", f"import gguf_parser as g; g.GGUFParser({str(header)!r}).parse()"],
        }
        print(f"\n{'header of the largest mixture':32} {'seconds':>8} {'times ours':>10}")
        first = 0.0
        for tool, command in readers.items():
            if (
                subprocess.run([*command[:2], "pass"], capture_output=True, check=False).returncode
                and tool != "archonctl inspect"
            ):
                continue
            seconds, said = timed(command, rounds)
            first = first or seconds
            print(f"{tool:32} {seconds:8.2f} {seconds / first:10.1f}{'  failed' if 'Error' in said else ''}")


if __name__ == "__main__":
    main()
