"""How many plans a second the capacity laws make: geometry and settings in, blocks and tokens out; no file, no engine.

usage: .venv/bin/python benchmarks/law_speed.py [SECONDS]

Every public model that archonctl knows by name, through the law of every engine. "whole" forms vLLM's groups of layers
anew for each plan, on two ranks or on two uneven pipeline stages; "sweep" keeps them and varies memory and length, as a
solver does. Printed: the slowest and the middle model of each law, and 1,000 models x 60 cards.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

from archonctl.engines.llamacpp.kv import KvSettings as LlamaSettings
from archonctl.engines.llamacpp.kv import allocate
from archonctl.engines.radiance.kv import kv_law
from archonctl.engines.sglang.kv import pool_tokens, rates
from archonctl.engines.vllm.groups import form_groups
from archonctl.engines.vllm.kv import KvSettings, plan_kv
from archonctl.engines.vllm.layers import RankSettings, rank_buckets
from archonctl.errors import ArchonError
from archonctl.model.geometry import Geometry
from archonctl.model.inline import describe
from archonctl.model.manifest import read_manifest

GIB = 1024**3
GOAL = 20_000
MODELS = (
    *("llama-3.1-8b", "llama-3.1-405b", "qwen3-32b", "qwen3-235b-a22b", "mixtral-8x7b", "deepseek-v3", "kimi-k2"),
    *("gemma-2-27b", "gemma-3-27b", "gpt-oss-20b", "gpt-oss-120b", "qwen3-next-80b", "glm-4.5"),
)
MANIFEST = Path(__file__).parent.parent / "env" / "models" / "qwen3.8-next-flash.toml"


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
    two, staged = RankSettings(tp=2), RankSettings(pp=2)
    groups = form_groups(rank_buckets(geometry, two))

    def vllm(turn: int, rank: RankSettings, stages: int) -> object:
        fresh = form_groups(rank_buckets(geometry, rank), stages=stages)
        return plan_kv(fresh, (turn % 80 + 1) * GIB, KvSettings(4096 + turn % 100_000))

    return {
        "vllm sweep": lambda turn: plan_kv(groups, (turn % 80 + 1) * GIB, KvSettings(4096 + turn % 100_000)),
        "vllm whole, tp 2": lambda turn: vllm(turn, two, 1),
        "vllm whole, pp 2": lambda turn: vllm(turn, staged, 2),
        "sglang": lambda turn: pool_tokens((turn % 80 + 1) * GIB, rates(geometry, tp=2).full or 1),
        "llamacpp": lambda turn: allocate(geometry, LlamaSettings(4096 + turn % 100_000, 4)),
    }


def radiance(seconds: float) -> float:
    """The law of the one model whose manifest ships with the repository."""
    rad = read_manifest(str(MANIFEST)).rad
    assert rad is not None
    return rate(lambda turn: kv_law(rad, "fp8", "pair").tokens(2000 + turn % 30_000, turn % 8 + 1), seconds)


def main() -> None:
    """Print the table."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 0.2
    found: dict[str, dict[str, float]] = {"radiance": {MANIFEST.stem: radiance(seconds)}}
    geometries = {}
    for name in MODELS:
        try:
            geometries[name] = describe(None, name).geometry
            for law, call in candidates(geometries[name]).items():
                found.setdefault(law, {})[name] = rate(call, seconds)
        except ArchonError as err:
            print(f"{name}: {err.message}")
    print(f"{'law':18} {'models':>6} {'middle':>11} {'slowest':>11}  plans a second; the aim is {GOAL:,}")
    for law, rates_of in found.items():
        name = min(rates_of, key=lambda model: rates_of[model])
        worst = rates_of[name]
        middle = statistics.median(rates_of.values())
        print(f"{law:18} {len(rates_of):6} {middle:11,.0f} {worst:11,.0f}  {worst / GOAL:4.1f} times the aim ({name})")
    cycle = list(geometries.values())
    began = time.process_time()
    for number in range(1000):
        groups = form_groups(rank_buckets(cycle[number % len(cycle)], RankSettings()))
        for card in range(60):
            plan_kv(groups, (8 + 2 * card) * GIB, KvSettings(32_768))
    print(f"1,000 models x 60 cards: {time.process_time() - began:.2f} s; the aim is 2")


if __name__ == "__main__":
    main()
