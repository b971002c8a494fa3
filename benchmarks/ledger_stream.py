"""Megabytes a second of a log without a ledger in it, against what merely reading its lines costs.

python benchmarks/ledger_stream.py [MEBIBYTES]
"""

from __future__ import annotations

import io
import random
import sys
import time
import tracemalloc
from collections.abc import Callable

from archonctl.ledger.reader import read_ledger

ACCESS = b'INFO:     10.0.0.%d:52314 - "POST /v1/chat/completions HTTP/1.1" 200 OK\n'
STATS = b"INFO 11-30 06:05:%02d [loggers.py:127] Engine 000: Running: %d reqs, GPU KV cache usage: 12.3%%\n"
WORDS = b"the request was served in time from host with status and generated prompt batch decode prefill user".split()


def numbered(pattern: bytes, size: int) -> bytes:
    """Lines that differ in their numbers alone."""
    fields = pattern.replace(b"%%", b"").count(b"%")
    lines = b"".join(pattern % tuple(random.randint(0, 59) for _ in range(fields)) for _ in range(5000))
    return (lines * (size // len(lines) + 1))[:size]


def prose(size: int) -> bytes:
    """Lines of which no two are alike."""
    line = [b" ".join(random.choices(WORDS, k=14)) + b"\n" for _ in range(size // 90)]
    return b"".join(line)[:size]


def seconds(work: Callable[[], object]) -> float:
    """Processor time of one run."""
    start = time.process_time()
    work()
    return time.process_time() - start


def main() -> None:
    """Print one row for each kind of log."""
    size = (int(sys.argv[1]) if len(sys.argv) > 1 else 256) << 20
    random.seed(1)
    print(f"{size >> 20} MiB of each    MB/s read    MB/s lines only    peak MiB beyond the log")
    kinds = {"access log": numbered(ACCESS, size), "statistics": numbered(STATS, size), "prose": prose(size)}
    for name, log in kinds.items():
        read = len(log) / seconds(lambda log=log: read_ledger(io.BytesIO(log))) / 1e6
        floor = len(log) / seconds(lambda log=log: sum(1 for _ in io.BytesIO(log))) / 1e6
        part = io.BytesIO(log[: 32 << 20])
        tracemalloc.start()
        read_ledger(part)
        peak = tracemalloc.get_traced_memory()[1] / 2**20
        tracemalloc.stop()
        print(f"{name:<18} {read:>10.0f} {floor:>18.0f} {peak:>26.1f}")


if __name__ == "__main__":
    main()
