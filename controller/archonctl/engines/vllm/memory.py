"""Memory for vLLM's cache on one rank where no log names it: what is known of the rest of a card."""

from __future__ import annotations

from archonctl.engines.sharding import attention_share, offloaded, padded_vocabulary
from archonctl.memory.interval import Interval
from archonctl.model.geometry import ModelFacts

CPU_SPACE_GIB = 4
CPU_SPACE_UNTIL = (0, 12)
"""VLLM_CPU_KVCACHE_SPACE unset meant 4 GiB (vllm/platforms/cpu.py of 0.11); later releases take a share of memory."""
WIDEST = 0.10
"""A blind figure whose error is wider than this share of the cache says too little to be given."""
_FLOATS = ("F32", "F64")
"""Loaded in the model's own dtype, unless the checkpoint is quantised (its scales stay as they are)."""


def rank_weights(model: ModelFacts, tp: int, stages: tuple[int, ...], model_bytes: int) -> Interval | None:
    """Bytes of weights on the fullest rank; None where the files were not there to count.

    Layers go by the stage with the most of them, shared out over ``tp``, but for what attention holds whole; embedding
    and output lie on the first and last stage, padded. What has no class (norms, towers of other modalities) is shared
    out at best, and whole at worst.
    """
    parts = _rank_parts(model, tp, stages, model_bytes)
    if parts is None:
        return None
    mine, ends, other = parts
    if len(stages) == 1:
        mine += ends / tp
        return Interval(mine, mine + other / tp, mine + other, "header")
    return Interval(mine, mine + (ends / 2 + other) / tp, mine + ends / tp + other, "header")


def offloaded_bytes(model: ModelFacts, tp: int, stages: tuple[int, ...], model_bytes: int, gib: float) -> Interval:
    """Bytes of a rank's layers that --cpu-offload-gb keeps in RAM; nothing where they were not there to count."""
    parts = _rank_parts(model, tp, stages, model_bytes) if gib else None
    return offloaded(parts[0], max(stages), gib) if parts else Interval.exact(0)


def _rank_parts(
    model: ModelFacts, tp: int, stages: tuple[int, ...], model_bytes: int
) -> tuple[float, float, float] | None:
    """Bytes of the layers of the fullest rank, of all of embedding and output, and of all that has no class."""
    if not model.tensor_bytes:
        return None
    quantised = any(key.startswith("quantization_config.") for key in model.metadata or {})
    layers = attention = ends = other = 0.0
    for part in model.tensor_bytes:
        size = part.bytes * (model_bytes / (8 if part.dtype == "F64" else 4) if _shrinks(part.dtype, quantised) else 1)
        if part.cls in ("embedding", "output"):
            ends += size * padded_vocabulary(model.geometry)
        elif part.cls == "attention":
            attention += size
        elif part.cls == "other":
            other += size
        else:
            layers += size
    mine = (layers / tp + attention * attention_share(model, tp)) * max(stages) / sum(stages)
    return mine, ends, other


def _shrinks(dtype: str, quantised: bool) -> bool:
    return dtype in _FLOATS and not quantised


def blind_rank_bytes(card_bytes: float, share: float, weights: Interval, rest: Interval) -> Interval:
    """Cache bytes of one rank from its card, the share that vLLM may use, its weights, and what else the share has to
    pay for; may be below 0."""
    budget = card_bytes * share
    return Interval(
        budget - weights.high - rest.high, budget - weights.best - rest.best, budget - weights.low - rest.low, "assumed"
    )
