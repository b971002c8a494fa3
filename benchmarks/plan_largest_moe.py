"""How long a plan of a very large mixture of experts takes from a cold process. The aim: under 0.3 s on two cores.

usage: .venv/bin/python benchmarks/plan_largest_moe.py [ROUNDS]

The file has the header of Kimi K2's shape (61 layers, 384 experts, MLA, 163,840 tokens of vocabulary, about 1,100
tensors) and a length to match; its tensors are holes. Printed: the median of a plan, of what it is made of, and ratios
to bare Python and to reading the same header with the ``gguf`` package from PyPI, where that is installed.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import Random

from archonctl.model.gguf_writer import GgufWriter

PYTHON = sys.executable
ARCHONCTL = Path(PYTHON).with_name("archonctl")
GOAL_S = 0.3
COMPILED = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
"""Modules are compiled once and kept, as an installed package has them; a run before the first that counts does it."""
HIDDEN, LAYERS, DENSE, EXPERTS, EXPERT_FF, VOCAB = 7168, 61, 1, 384, 2048, 163_840
NORMS = ("attn_norm", "ffn_norm", "attn_q_a_norm", "attn_kv_a_norm")
KEYS = {
    "block_count": LAYERS,
    "context_length": 131_072,
    "embedding_length": HIDDEN,
    "feed_forward_length": 18_432,
    "leading_dense_block_count": DENSE,
    "expert_count": EXPERTS,
    "expert_used_count": 8,
    "expert_shared_count": 1,
    "expert_feed_forward_length": EXPERT_FF,
    "vocab_size": VOCAB,
    "attention.head_count": 64,
    "attention.head_count_kv": 1,
    "attention.q_lora_rank": 1536,
    "attention.kv_lora_rank": 512,
    "attention.key_length": 576,
    "attention.value_length": 512,
    "attention.key_length_mla": 192,
    "attention.value_length_mla": 128,
    "rope.dimension_count": 64,
}
DECLARED = """
[contract]
seqs = 4
len = 32768
[engine]
kind = "llamacpp"
version = "b11434"
binary = "/usr/bin/llama-server"
[model]
path = "{model}"
[host]
profile = "{host}"
"""


def write_header(path: Path) -> None:
    """The header, and holes for the tensors."""
    random, out = Random(0), GgufWriter()
    out.string("general.architecture", "deepseek2")
    out.prefix = "deepseek2."
    for key, value in KEYS.items():
        out.u32(key, value)
    out.prefix = "tokenizer.ggml."
    out.strings("tokens", ["".join(random.choices("etaoinshrdlu", k=6)) for _ in range(VOCAB)])
    out.i32s("token_type", [1] * VOCAB)
    out.strings("merges", ["".join(random.choices("etaoin shrdlu", k=11)) for _ in range(VOCAB)])
    out.tensor("token_embd.weight", HIDDEN, VOCAB)
    out.tensor("output.weight", HIDDEN, VOCAB)
    for layer in range(LAYERS):
        for name in (
            "attn_norm",
            "ffn_norm",
            "attn_q_a_norm",
            "attn_kv_a_norm",
            "attn_q_a",
            "attn_q_b",
            "attn_kv_a_mqa",
        ):
            out.tensor(f"blk.{layer}.{name}.weight", HIDDEN, 64)
        for name in ("attn_k_b", "attn_v_b", "attn_output", "ffn_gate_inp"):
            out.tensor(f"blk.{layer}.{name}.weight", HIDDEN, EXPERTS)
        for name in ("gate", "up", "down"):
            if layer < DENSE:
                out.tensor(f"blk.{layer}.ffn_{name}.weight", HIDDEN, 18_432)
            else:
                out.tensor(f"blk.{layer}.ffn_{name}_exps.weight", HIDDEN, EXPERT_FF, EXPERTS // 8)
                out.tensor(f"blk.{layer}.ffn_{name}_shexp.weight", HIDDEN, EXPERT_FF)
    head = next(out.encode(seed=0))
    size = sum(4 * _product(dims) for _, dims, _ in out.tensors)
    with path.open("wb") as file:
        file.write(head)
        file.truncate(len(head) + size + 32 * len(out.tensors))


def _product(dims: tuple[int, ...]) -> int:
    product = 1
    for dim in dims:
        product *= dim
    return product


def timed(command: list[str], rounds: int) -> tuple[float, float]:
    """Median and best seconds of one run; raises where it fails."""
    times = []
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False, env=COMPILED)
    for _ in range(rounds):
        began = time.perf_counter()
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False, env=COMPILED)
        times.append(time.perf_counter() - began)
        if done.returncode not in (0, 1, 3):
            raise SystemExit(done.stderr.decode()[-400:])
    return statistics.median(times), min(times)


def main() -> None:
    """Print the table."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 9
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model, host, endpoint = folder / "model.gguf", folder / "host.toml", folder / "endpoint.toml"
        write_header(model)
        cards = "".join(f'[[cards]]\nindex = {i}\nname = "c{i}"\ntotal_mib = 143771\n' for i in range(8))
        host.write_text(f"ram_mib = 2000000\n{cards}")
        endpoint.write_text(DECLARED.format(model=model, host=host))
        theirs = f"from gguf import GGUFReader; GGUFReader({str(model)!r})"
        rows = {
            "bare Python": timed([PYTHON, "-c", "pass"], rounds),
            "archonctl --version": timed([str(ARCHONCTL), "--version"], rounds),
            "archonctl plan": timed([str(ARCHONCTL), "plan", str(endpoint)], rounds),
        }
        if subprocess.run([PYTHON, "-c", "import gguf"], capture_output=True, check=False).returncode == 0:
            rows["gguf (PyPI) reads the header"] = timed([PYTHON, "-c", theirs], max(1, rounds // 4))
        print(f"header of {model.stat().st_size / 2**30:,.0f} GiB of model, {rounds} rounds")
    ours = rows["archonctl plan"]
    load = f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    print(f"{'':30} {'median':>10} {'best':>10}  best to a plan's; {load}")
    for what, (middle, best) in rows.items():
        print(f"{what:30} {middle * 1000:7.0f} ms {best * 1000:7.0f} ms  {best / ours[1]:6.2f}")
    print("met" if ours[0] <= GOAL_S else "met by the best run" if ours[1] <= GOAL_S else "missed")


if __name__ == "__main__":
    main()
