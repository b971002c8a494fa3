"""Declarations with which vLLM would not boot, whatever was promised."""

from __future__ import annotations

from archonctl.engines.base import Problem
from archonctl.engines.vllm.pool import Pool
from archonctl.engines.vllm.rest import Rest
from archonctl.engines.vllm.settings import Settings
from archonctl.host.profile import Host
from archonctl.memory.demand import Demand
from archonctl.memory.interval import GIB, MIB, Interval
from archonctl.model.geometry import Geometry, ModelFacts

FREE_CHECKED_SINCE = (0, 9)
"""The V1 worker compares free memory with the share before it loads; V0 took what there was."""
OWN_WINDOW = frozenset({"default", "su", "longrope", "llama3", "mrope"})
"""Kinds of rope scaling that leave the window at max_position_embeddings (vllm/config/model.py); all of Gemma 3 do."""


def refusals(settings: Settings, host: Host, model: ModelFacts | None, best: Pool | None) -> tuple[Problem, ...]:
    """Everything for which vLLM would not boot; ``best`` is the pool where its memory is more than an estimate."""
    found: list[Problem] = []
    if host.cards and not settings.cpu and len(host.cards) < settings.ranks:
        found.append(
            Problem(
                "cards-too-few",
                f"tp {settings.tp} x pp {settings.pp} needs {settings.ranks} cards, the host has {len(host.cards)}",
                "lower tensor-parallel-size or pipeline-parallel-size",
            )
        )
    found += _too_little_free(settings, host)
    if model and model.geometry:
        found += _uneven(model.geometry, settings.tp)
    trained = model.geometry.trained_context if model and model.geometry else 0
    if trained and settings.max_model_len > trained and not _stretched(model) and not settings.extras:
        found.append(
            Problem(
                "len-over-trained-context",
                f"max-model-len {settings.max_model_len:,} is over the model's window of {trained:,}: vLLM refuses it",
                f"lower contract.len to {trained}, or take a model that is made for longer ones",
            )
        )
    if best and best.plan.refusal:
        found.append(_refused(settings, best))
    return tuple(found)


def _too_little_free(settings: Settings, host: Host) -> list[Problem]:
    """Cards with less free than the share, which is asked for before anything is loaded, also where the cache is stated
    (``request_memory`` in vllm/v1/worker/utils.py; the driver's context is taken by then, and is not counted here)."""
    if settings.cpu or settings.rules.version < FREE_CHECKED_SINCE:
        return []
    found = []
    for card in host.cards[: settings.ranks]:
        share = card.total_mib * settings.utilisation
        if card.free_mib is not None and card.free_mib < share:
            asked = f"gpu-memory-utilization {settings.utilisation:g} asks for {share:,.0f} at the start"
            message = f"{card.free_mib:,} MiB of card {card.index} are free, and {asked}"
            most = int(card.free_mib / card.total_mib * 100 - 1) / 100
            hint = f"free the card, or lower gpu-memory-utilization to {most:g}" if most > 0 else "free the card"
            found.append(Problem("free-memory-too-little", message, hint))
    return found


def _uneven(geometry: Geometry, tp: int) -> list[Problem]:
    """Heads that cannot be shared out (vllm/config/model.py ``verify_with_parallel_config``, QKVParallelLinear)."""
    if geometry.heads % tp:
        message = f"{geometry.heads} attention heads do not divide over {tp} ranks"
        return [Problem("tp-unservable", message, "set tensor-parallel-size to a divisor of them")]
    heads = {layer.kv_heads for layer in geometry.layers if layer.attention in ("full", "sliding", "chunked")}
    if odd := sorted(count for count in heads if count and count % tp and tp % count):
        message = f"{odd[0]} KV heads do not divide over {tp} ranks, nor the ranks over them"
        return [Problem("tp-unservable", message, "set tensor-parallel-size to a divisor or a multiple of them")]
    return []


def _stretched(model: ModelFacts | None) -> bool:
    """True where the config scales positions in a way that may lift the window."""
    if model is None or model.geometry is None or model.geometry.architecture.startswith("gemma3"):
        return False
    kinds = {
        value
        for key, value in (model.metadata or {}).items()
        if key.startswith(("rope_scaling.", "rope_parameters.")) and key.endswith("type")
    }
    return not kinds <= OWN_WINDOW


def over_card(
    settings: Settings, host: Host, weights: Interval | None, rest: Rest | None, demands: tuple[Demand, ...]
) -> tuple[Problem, ...]:
    """A stated cache that a card cannot hold beside its weights and the least of what lies beside them."""
    least = least_card_bytes(settings, weights, rest, demands)
    if not least or rest is None:
        return ()
    cache = sum(demand.bytes for demand in demands if demand.cls == "kv_cache")
    total = min(card.total_mib for card in host.cards[: settings.ranks]) * MIB
    if least <= total:
        return ()
    room = max(0.0, total - least + cache)
    message = (
        f"a cache of {cache / GIB:.2f} GiB was stated; a card of {total / GIB:.2f} GiB has "
        f"{room / GIB:.2f} GiB beside its weights and at least {rest.all.low / GIB:.2f} GiB of rest"
    )
    return (Problem("kv-over-card", message, "lower it, or share the model out over more cards"),)


def least_card_bytes(
    settings: Settings, weights: Interval | None, rest: Rest | None, demands: tuple[Demand, ...]
) -> float:
    """The least that a card must have for a stated cache, beside weights and the least of what lies beside them; 0
    where none is stated."""
    if settings.cpu or not (settings.kv_memory_bytes or settings.blocks_override):
        return 0
    cache = sum(demand.bytes for demand in demands if demand.cls == "kv_cache")
    return cache + (weights.low if weights else 0) + (rest.all.low if rest else 0)


def _refused(settings: Settings, best: Pool) -> Problem:
    plan, length = best.plan, settings.max_model_len
    if plan.refusal == "kv-states-short":
        message = f"max-num-seqs {settings.max_num_seqs:,} is over the {plan.blocks:,} blocks that hold states"
        return Problem(plan.refusal, message, "lower max-num-seqs")
    if plan.refusal == "kv-no-memory":
        return Problem(plan.refusal, "no block of the cache fits the memory that is left for it")
    need, have = plan.request_bytes / GIB, plan.blocks * plan.block_bytes / GIB
    return Problem(
        plan.refusal,
        f"one request of max-model-len {length:,} needs {need:.2f} GiB of cache, {have:.2f} GiB are there: "
        f"vLLM would not boot (the longest that fits is {best.longest:,} tokens)",
        f"lower max-model-len to {best.longest}",
    )
