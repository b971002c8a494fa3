"""Memory for vLLM's cache from card, flags and weights alone, with its error; None where none can be stated."""

from __future__ import annotations

from dataclasses import dataclass

from archonctl.engines.beside import Shape
from archonctl.engines.vllm.memory import CPU_SPACE_GIB, CPU_SPACE_UNTIL, WIDEST
from archonctl.engines.vllm.rest import UNKNOWN_GIB, rest_of
from archonctl.ledger.case import CaseFacts
from archonctl.ledger.values import BootLedger
from archonctl.memory.interval import GIB, Interval
from archonctl.model.geometry import ModelFacts
from archonctl.model.hf_folder import scalars

V1_SINCE = (0, 8)
LARGE_GIB = 70
"""Cards from here on take larger batches and more sequences by default."""
CHUNKED_FROM = 32_768


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
    rest = rest_gib(facts, card, version)
    low, best, high = (card * share - weights.best - other for other in reversed(rest))
    if low <= 0 or (high - low) / 2 > best * WIDEST:
        return None
    size = Interval(low * GIB, best * GIB, high * GIB, "assumed")
    error = (high - low) / 2 / best
    return BlindBytes(size, f"{card:g} GiB x {share:g} - weights {weights.best:g} - {rest[1]:.2g} GiB (+-{error:.0%})")


def rest_gib(facts: CaseFacts, card_gib: float, version: tuple[int, ...]) -> tuple[float, float, float]:
    """What lies beside weights and cache on one rank: low, best, high; of public boots where no widths are stated."""
    if facts.geometry is None or not facts.config:
        return UNKNOWN_GIB
    model = ModelFacts("", "safetensors", facts.geometry, 0, metadata=scalars(facts.config))
    large = card_gib >= LARGE_GIB and "a100" not in facts.card.lower()
    tp = facts.number("tp") or 1
    shape = Shape(
        engine="vllm",
        tp=tp,
        ranks=tp * (facts.number("pp") or 1),
        tokens=facts.number("max_num_batched_tokens") or _batched(facts, version, large=large),
        seqs=facts.number("max_num_seqs") or (1024 if large and version >= V1_SINCE else 256),
        graphs=facts.switch("enforce_eager") is not True,
        images=facts.switch("language_model_only") is not True,
    )
    rest = rest_of("nvidia", shape, model, version)
    return rest.share.low / GIB, rest.share.best / GIB, rest.share.high / GIB


def _batched(facts: CaseFacts, version: tuple[int, ...], *, large: bool) -> int:
    """max_num_batched_tokens by default (vllm/engine/arg_utils.py). V0 split prompts from 32,768 tokens on only."""
    length = facts.number("max_model_len")
    if version < V1_SINCE:
        return max(length, 2048) if 0 < length <= CHUNKED_FROM else 2048
    return 8192 if large else 2048
