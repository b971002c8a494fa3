"""What vLLM asks of every card: weights, cache, and the rest of its share, itemised or as a boot left it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import ceil

from archonctl.engines.base import CardRule
from archonctl.engines.beside import Lora, Shape, beside_demands, unknown_parts
from archonctl.engines.declared import DeclaredKnobs
from archonctl.engines.vllm.assess import Assessment
from archonctl.engines.vllm.memory import OVERHEAD_GIB
from archonctl.engines.vllm.refusals import least_card_bytes
from archonctl.engines.vllm.settings import ALIASES
from archonctl.host.profile import Card, Host
from archonctl.memory.demand import Demand
from archonctl.memory.interval import GIB, MIB
from archonctl.model.geometry import ModelFacts


def demands_by_card(now: Assessment, host: Host, model: ModelFacts | None) -> tuple[tuple[Demand, ...], CardRule]:
    """The demands with the index of their card, and the most that vLLM takes of each: its share, unless the cache is
    stated.

    On a CPU, and without cards, the demands as they are.
    """
    if now.settings.cpu or not host.cards:
        return now.demands, CardRule(headroom=0.0)
    used, stated = host.cards[: now.settings.ranks], now.settings.kv_memory_bytes or now.settings.blocks_override
    ceilings = {} if stated else {card.index: int(card.total_mib * MIB * now.settings.utilisation) for card in used}
    found: list[Demand] = []
    for card in used:
        mine = [replace(demand, card=card.index) for demand in now.demands]
        found += [*mine, *_rest(now, card, mine, model, ceilings.get(card.index))]
    least = ceil(least_card_bytes(now.settings, now.weights, now.demands))
    return tuple(found), CardRule(headroom=0.0, ceilings=ceilings, least_bytes=least)


def beside_unknown(now: Assessment, host: Host, model: ModelFacts | None) -> Iterator[str]:
    """What of the rest of a card has no figure."""
    if not now.settings.cpu and host.cards and now.memory.boot is None:
        yield from unknown_parts(host.cards[: now.settings.ranks], shape_of(now), model)


def shape_of(now: Assessment) -> Shape:
    """What decides activations, graphs and LoRA slots. Defaults are those of vllm/config/lora.py (0.32.0)."""
    settings, knobs = now.settings, DeclaredKnobs(now.endpoint.engine.knobs, ALIASES)
    lora = None
    if knobs.switch("enable-lora", False):
        lora = Lora(knobs.number("max-loras", 1, minimum=1), knobs.number("max-lora-rank", 16, minimum=1))
    return Shape(
        engine="vllm",
        tp=settings.tp,
        ranks=settings.ranks,
        tokens=settings.batched_tokens,
        seqs=settings.max_num_seqs,
        element_bytes=settings.model_bytes,
        graphs=not knobs.switch("enforce-eager", False),
        lora=lora,
    )


def _rest(
    now: Assessment, card: Card, mine: list[Demand], model: ModelFacts | None, ceiling: int | None
) -> Iterator[Demand]:
    """Beside weights and cache. A boot that was seen says what they left of the share; else every part is estimated."""
    held = sum(demand.bytes for demand in mine)
    if now.memory.boot is not None and ceiling is not None and now.weights is not None:
        what = "activations, graphs and context: what that boot left of the share"
        yield Demand("activation", "device", "", max(0, ceiling - held), what, "log", card.index)
        return
    parts = tuple(beside_demands(card, shape_of(now), model))
    yield from parts
    if now.memory.blind:
        more = int(OVERHEAD_GIB[1] * GIB) - sum(part.bytes for part in parts)
        if more > 0:
            what = "more that public boots hold beside these, at their middle"
            yield Demand("unknown", "device", "", more, what, "assumed", card.index, 0, int(OVERHEAD_GIB[2] * GIB))
