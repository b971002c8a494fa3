"""Time and memory of reading a GGUF header with a large vocabulary, beside the ``gguf`` package from PyPI.

    python benchmarks/gguf_header.py [--tokens 150000] [--merges 150000] [--repeat 5]

Every reader runs in a process of its own on the same file (warm page cache); all share this one run, so the ratios
hold even where the machine is busy. "first" is the first read in the process, "best" the best of the others.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

TENSORS_A_LAYER = 9


def write_model(path: Path, tokens: int, merges: int, layers: int = 36) -> None:
    """A model file with a real vocabulary's shape; its tensors are sparse zeros."""
    from archonctl.model.gguf_writer import GgufWriter

    random = Random(0)
    letters = "etaoinshrdlucmfgypwbvk"

    def word() -> str:
        if random.random() < 0.003:
            return " " * random.randint(64, 128)
        return "\u0120" + "".join(random.choices(letters, k=max(1, round(random.gauss(5.5, 2.5)))))

    out = GgufWriter()
    out.string("general.architecture", "qwen3")
    out.prefix = "qwen3."
    for key, value in (("block_count", layers), ("context_length", 40_960), ("embedding_length", 4096)):
        out.u32(key, value)
    for key, value in (("head_count", 32), ("head_count_kv", 8), ("key_length", 128), ("value_length", 128)):
        out.u32(f"attention.{key}", value)
    out.prefix = "tokenizer.ggml."
    out.strings("tokens", [word() for _ in range(tokens)])
    out.i32s("token_type", [1] * tokens)
    out.strings("merges", [f"{word()} {word()}" for _ in range(merges)])
    for i in range(layers):
        for j in range(TENSORS_A_LAYER):
            out.tensor(f"blk.{i}.ffn_{j}.weight", 64, 64, fill="ones")
    with path.open("wb") as file:
        file.writelines(out.encode(seed=0))


def read_ours(path: Path) -> object:
    from archonctl.model.gguf import read_gguf

    return read_gguf(path).geometry


def read_theirs(path: Path) -> object:
    from gguf import GGUFReader

    return GGUFReader(path).fields["qwen3.block_count"].contents()


READERS: dict[str, Callable[[Path], object]] = {"archonctl": read_ours, "gguf (PyPI)": read_theirs}


def measure(reader: str, path: Path, repeat: int) -> dict[str, float]:
    """Milliseconds and peak growth of resident memory in MiB, in this process."""
    read = READERS[reader]
    small = path.with_name("small.gguf")
    read(small)  # imports, and tables that are loaded once
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        read(path)
        times.append((time.perf_counter() - start) * 1000)
    growth = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    return {"first_ms": times[0], "best_ms": min(times), "growth_mib": growth}


def main() -> int:
    """Print one line a reader and the ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--tokens", type=int, default=150_000)
    parser.add_argument("--merges", type=int, default=150_000)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--measure", choices=READERS, help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        print(json.dumps(measure(given.measure, given.file, given.repeat)))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.gguf")
        write_model(path, given.tokens, given.merges)
        write_model(path.with_name("small.gguf"), 10, 10)
        print(f"{given.tokens:,} tokens, {given.merges:,} merges, file of {path.stat().st_size / 2**20:.1f} MiB")
        figures = {}
        for reader in READERS:
            command = [
                sys.executable,
                __file__,
                "--measure",
                reader,
                "--file",
                str(path),
                "--repeat",
                str(given.repeat),
            ]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            figures[reader] = json.loads(done.stdout)
            print(f"{reader:12s} " + "  ".join(f"{key} {value:9.1f}" for key, value in figures[reader].items()))
    ours, theirs = figures["archonctl"], figures["gguf (PyPI)"]
    print(f"ratio: first {theirs['first_ms'] / ours['first_ms']:.0f}x, best {theirs['best_ms'] / ours['best_ms']:.0f}x")
    return 0


if __name__ == "__main__":
    sys.exit(main())
