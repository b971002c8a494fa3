"""How many plans a second the KV laws make: geometry and settings in, blocks and tokens out; no file, no engine.

usage: .venv/bin/python benchmarks/law_speed.py [SECONDS]

"whole law" forms the groups of every layer anew for each plan; "sweep" keeps them and varies memory and length, as
a solver does. Printed: plans a second by model, and 1,000 models x 60 cards.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from archonctl.engines.llamacpp.kv import KvSettings as LlamaSettings
from archonctl.engines.llamacpp.kv import allocate
from archonctl.engines.sglang.kv import pool_tokens, rates
from archonctl.engines.vllm.groups import form_groups
from archonctl.engines.vllm.kv import KvSettings, plan_kv
from archonctl.engines.vllm.layers import RankSettings, rank_buckets
from archonctl.model.geometry import Geometry
from archonctl.model.inline import describe

GIB = 1024**3
GOAL = 20_000
MODELS = ("llama-3.1-8b", "qwen3-32b", "deepseek-v3", "gemma-3-27b", "gpt-oss-20b", "qwen3-next-80b")


def rate(call: Callable[[int], object], seconds: float) -> float:
    """Calls a second of processor time, over at least ``seconds`` of it."""
    done, began = 0, time.process_time()
    while (passed := time.process_time() - began) < seconds:
        for turn in range(100):
            call(done + turn)
        done += 100
    return done / passed


def candidates(geometry: Geometry) -> dict[str, Callable[[int], object]]:
    """What is timed for one model."""
    rank = RankSettings(tp=2)
    groups = form_groups(rank_buckets(geometry, rank))
    return {
        "vllm sweep": lambda turn: plan_kv(groups, (turn % 80 + 1) * GIB, KvSettings(4096 + turn % 100_000)),
        "vllm whole law": lambda turn: plan_kv(
            form_groups(rank_buckets(geometry, rank)), (turn % 80 + 1) * GIB, KvSettings(4096 + turn % 100_000)
        ),
        "sglang": lambda turn: pool_tokens((turn % 80 + 1) * GIB, rates(geometry, tp=2).full),
        "llamacpp": lambda turn: allocate(geometry, LlamaSettings(4096 + turn % 100_000, 4)),
    }


def main() -> None:
    """Print the table."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 0.5
    for name in MODELS:
        for what, call in candidates(describe(None, name).geometry).items():
            found = rate(call, seconds)
            print(f"{name:16} {what:15} {found:12,.0f} plans a second, {found / GOAL:5.1f} times the aim")
    geometries = [describe(None, MODELS[i % len(MODELS)]).geometry for i in range(1000)]
    began = time.process_time()
    for geometry in geometries:
        groups = form_groups(rank_buckets(geometry, RankSettings()))
        for card in range(60):
            plan_kv(groups, (8 + 2 * card) * GIB, KvSettings(32_768))
    print(f"1,000 models x 60 cards: {time.process_time() - began:.2f} s")


if __name__ == "__main__":
    main()
