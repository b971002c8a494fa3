"""What a plan for vLLM can be solved for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from archonctl.deployment.schema import Endpoint
from archonctl.engines.change import LEN, SEQS, Variable, mirrored, spelt
from archonctl.engines.vllm.levers import MOST_UTILISATION
from archonctl.engines.vllm.settings import ALIASES, CPU_SPACE, settings_of
from archonctl.host.profile import Host

MOST_RANKS = 64
"""Ranks that are tried where no card is known."""
MOST_OFFLOAD_GIB = 1024
_OFFLOAD = "those weights cross the bus on every step"
_CARDS = "a card for each rank, and what they say to each other on every token"


def variables(endpoint: Endpoint, host: Host) -> Mapping[str, Variable]:
    """By the name that ``--solve`` takes. Only one of the three ways to size the cache applies."""
    settings = settings_of(endpoint)

    def mirrors(*knobs: str) -> tuple[str, ...]:
        return mirrored(endpoint, knobs, ALIASES)

    def key(knob: str) -> str:
        return spelt(endpoint, knob, ALIASES)

    found = {
        "seqs": replace(SEQS, mirrors=mirrors("max-num-seqs"), lever=False),
        "len": replace(LEN, mirrors=mirrors("max-model-len"), lever=False),
        "kv-dtype": Variable(
            "contract.kv_dtype", "first", choices=("f16", "fp8"), mirrors=mirrors("kv-cache-dtype"), lever=False
        ),
    }
    if settings.kv_memory_bytes:
        found["kv-memory"] = Variable(
            key("kv-cache-memory-bytes"), "least", "bytes a rank", 1 << 20, 1 << 42, 1 << 20, lever=False
        )
    elif settings.cpu:
        found["cpu-space"] = Variable(f"engine.env.{CPU_SPACE}", "least", "GiB", 1, 1 << 16, lever=False)
    else:
        found["utilization"] = Variable(
            key("gpu-memory-utilization"), "least", "of each card", 0.01, MOST_UTILISATION / 100, 0.01, lever=False
        )
    ranks = len(host.cards) or MOST_RANKS
    if not settings.cpu:
        found["tp"] = Variable(
            key("tensor-parallel-size"), "least", "ranks", 1, max(1, ranks // settings.pp), costs=_CARDS
        )
        found["cpu-offload"] = Variable(
            key("cpu-offload-gb"), "least", "GiB of a rank", 0, MOST_OFFLOAD_GIB, 1, costs=_OFFLOAD
        )
        found["pp"] = Variable(
            key("pipeline-parallel-size"), "least", "stages", 1, max(1, ranks // settings.tp), costs=_CARDS
        )
    return found
