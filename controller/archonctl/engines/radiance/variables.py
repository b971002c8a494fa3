"""What a plan for radiance can be solved for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from archonctl.deployment.schema import Endpoint
from archonctl.engines.change import LEN, SEQS, Variable
from archonctl.engines.radiance.knobtable import find
from archonctl.engines.radiance.kv import DTYPES
from archonctl.engines.radiance.settings import read_settings
from archonctl.host.profile import Host

MOST_MIB = 1 << 20
"""More host memory for one rank, or more of a card, than any machine of this engine has."""


def variables(endpoint: Endpoint, host: Host) -> Mapping[str, Variable]:
    """By the name that ``--solve`` takes: the host pool where the engine derives the split, the pair before."""
    settings, _problems = read_settings(endpoint)
    spellings = {knob.flag: key for key in endpoint.engine.knobs if (knob := find(key))}

    def key(flag: str) -> str:
        return f"engine.knobs.{spellings.get(flag, flag)}"

    def mirrors(flag: str) -> tuple[str, ...]:
        return (key(flag),) if flag in spellings else ()

    found = {
        "seqs": replace(SEQS, mirrors=mirrors("max-num-seqs"), lever=False),
        "len": replace(LEN, mirrors=mirrors("max-model-len"), lever=False),
        "kv-dtype": Variable(
            "contract.kv_dtype", "first", choices=DTYPES, mirrors=mirrors("kv-cache-dtype"), lever=False
        ),
    }
    if settings.era == "resolver":
        most = host.ram_mib // max(1, settings.tp) if host.ram_mib else MOST_MIB
        found["host-pool"] = Variable(key("host-pool-mib"), "least", "MiB a rank", 0, most, lever=False)
    else:
        found["kv-pool"] = Variable(key("vram-kv-mib"), "least", "MiB a card", 1, MOST_MIB, lever=False)
        found["slab"] = Variable(key("vram-weights-mib"), "most", "MiB a card", 1, MOST_MIB, lever=False)
    return found
