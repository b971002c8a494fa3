"""What a plan for llama-server can be solved for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from archonctl.deployment.schema import Endpoint
from archonctl.engines.change import LEN, SEQS, Variable, mirrored, spelt
from archonctl.engines.llamacpp.declared import ALIASES
from archonctl.engines.llamacpp.kv import MAX_CONTEXT, MAX_SEQUENCES
from archonctl.host.profile import Host

DTYPES = ("f16", "q8_0", "q5_1", "q4_0")
"""Cache dtypes from the most precise one down."""
MOST_LAYERS = 256
MOST_MIB = 1 << 24
"""More RAM than any host has, for one whose RAM is not known."""


def variables(endpoint: Endpoint, host: Host) -> Mapping[str, Variable]:
    """By the name that ``--solve`` takes."""

    def mirrors(*knobs: str) -> tuple[str, ...]:
        return mirrored(endpoint, knobs, ALIASES)

    def key(knob: str) -> str:
        return spelt(endpoint, knob, ALIASES)

    types = mirrors("cache-type-k", "cache-type-v")
    found = {
        "seqs": replace(SEQS, high=MAX_SEQUENCES, mirrors=mirrors("parallel"), lever=False),
        "len": replace(LEN, mirrors=mirrors("kv-unified-per-slot"), lever=False),
        "kv-dtype": Variable("contract.kv_dtype", "first", choices=DTYPES, mirrors=types, lever=False),
        "context": Variable(key("ctx-size"), "least", "tokens", 256, MAX_CONTEXT, 256, lever=False),
        "prompt-cache": Variable(key("cache-ram"), "most", "MiB", 0, host.ram_mib or MOST_MIB, lever=False),
    }
    if host.cards:
        slow = "layers in RAM are computed there: every token waits for them"
        found["cpu-moe"] = Variable(key("n-cpu-moe"), "least", "layers", 0, MOST_LAYERS, costs=slow)
        found["gpu-layers"] = Variable(key("gpu-layers"), "most", "layers", 0, MOST_LAYERS, costs=slow)
    return found
