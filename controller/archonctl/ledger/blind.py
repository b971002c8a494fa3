"""Memory for vLLM's cache from card, flags and weights alone, with its error; None where none can be stated."""

from __future__ import annotations

from dataclasses import dataclass

from archonctl.engines.vllm.memory import CPU_SPACE_GIB, CPU_SPACE_UNTIL, WIDEST
from archonctl.engines.vllm.rest import UNKNOWN_GIB
from archonctl.ledger.case import CaseFacts
from archonctl.ledger.values import BootLedger
from archonctl.memory.interval import GIB, Interval


@dataclass(frozen=True, slots=True)
class BlindBytes:
    """Bytes a rank, as an interval, and how they were found."""

    size: Interval
    method: str


def blind_bytes(
    facts: CaseFacts, ledger: BootLedger, *, cpu: bool = False, version: tuple[int, ...] = ()
) -> BlindBytes | None:
    """Cache memory of one rank without any line that names it."""
    if cpu:
        space = facts.number("VLLM_CPU_KVCACHE_SPACE", "vllm_cpu_kvcache_space", "kv_cache_space")
        if not space and version >= CPU_SPACE_UNTIL:
            return None
        gib = space or CPU_SPACE_GIB
        return BlindBytes(Interval.exact(gib * GIB), f"VLLM_CPU_KVCACHE_SPACE of {gib} GiB")
    total, weights = ledger.get("total_gib"), ledger.get("weights_gib")
    card = total.best if total is not None else facts.card_gib
    if not card or weights is None:
        return None
    share = facts.fraction("gpu_memory_utilization") or 0.9
    low, best, high = (card * share - weights.best - other for other in reversed(UNKNOWN_GIB))
    if low <= 0 or (high - low) / 2 > best * WIDEST:
        return None
    size = Interval(low * GIB, best * GIB, high * GIB, "assumed")
    error = (high - low) / 2 / best
    return BlindBytes(
        size, f"{card:g} GiB x {share:g} - weights {weights.best:g} - {UNKNOWN_GIB[1]} GiB (+-{error:.0%})"
    )
