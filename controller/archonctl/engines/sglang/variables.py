"""What a plan for SGLang can be solved for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from archonctl.deployment.schema import Endpoint
from archonctl.engines.change import LEN, SEQS, Variable, mirrored, spelt
from archonctl.engines.sglang.settings import ALIASES, settings_of
from archonctl.host.profile import Host

MOST_RANKS = 64
"""Ranks that are tried where no card is known."""
MOST_FRACTION = 0.95
"""Beyond it nothing is left for activations and graphs."""
MOST_OFFLOAD_GIB = 1024
_OFFLOAD = "those weights cross the bus on every step"
_CARDS = "a card for each rank, and what they say to each other on every token"
_PROMISE = "part of the promise"


def variables(endpoint: Endpoint, host: Host) -> Mapping[str, Variable]:
    """By the name that ``--solve`` takes."""

    def mirrors(*knobs: str) -> tuple[str, ...]:
        return mirrored(endpoint, knobs, ALIASES)

    def key(knob: str) -> str:
        return spelt(endpoint, knob, ALIASES)

    settings, ranks = settings_of(endpoint), len(host.cards) or MOST_RANKS
    return {
        "seqs": replace(SEQS, mirrors=mirrors("max-running-requests"), costs=_PROMISE),
        "len": replace(LEN, mirrors=mirrors("context-length"), costs=_PROMISE),
        "kv-dtype": Variable(
            "contract.kv_dtype",
            "first",
            choices=("f16", "fp8_e4m3"),
            mirrors=mirrors("kv-cache-dtype"),
            quality="some precision of the cache",
        ),
        "utilization": Variable(
            key("mem-fraction-static"),
            "least",
            "of each card",
            0.01,
            MOST_FRACTION,
            0.01,
            costs="room for activations and graphs, which SGLang takes from what is left",
        ),
        "tp": Variable(key("tp-size"), "least", "ranks", 1, max(1, ranks // settings.pp), costs=_CARDS),
        "pp": Variable(key("pp-size"), "least", "stages", 1, max(1, ranks // settings.tp), costs=_CARDS),
        "cpu-offload": Variable(
            key("cpu-offload-gb"), "least", "GiB of a rank", 0, MOST_OFFLOAD_GIB, 1, costs=_OFFLOAD
        ),
    }
