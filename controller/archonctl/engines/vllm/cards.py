"""What vLLM asks of every card: weights, cache, and the rest of its share, itemised or as a boot left it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import ceil

from archonctl.engines.base import CardRule
from archonctl.engines.beside import unknown_parts
from archonctl.engines.vllm.assess import Assessment
from archonctl.engines.vllm.refusals import least_card_bytes
from archonctl.engines.vllm.rest import Rest, rest_of, shape_of
from archonctl.host.profile import Card, Host
from archonctl.memory.demand import Demand
from archonctl.memory.interval import MIB
from archonctl.model.geometry import ModelFacts


def demands_by_card(now: Assessment, host: Host, model: ModelFacts | None) -> tuple[tuple[Demand, ...], CardRule]:
    """The demands with the index of their card, and the most that vLLM takes of each: its share and what lies beside
    that, unless the cache is stated.

    On a CPU, and without cards, the demands as they are.
    """
    if now.settings.cpu or now.rest is None:
        return now.demands, CardRule(headroom=0.0)
    settings, used = now.settings, host.cards[: now.settings.ranks]
    shape, version = shape_of(settings), settings.rules.version
    makers, counted = {card.maker for card in used}, settings.graphs_counted
    rests = {maker: rest_of(maker, shape, model, version, counted) for maker in makers}
    found = [demand for demand in now.demands if demand.scope == "host"]
    ceilings: dict[int, int] = {}
    for card in used:
        mine = [replace(demand, card=card.index) for demand in now.demands if demand.scope == "device"]
        share = int(card.total_mib * MIB * settings.utilisation)
        rest = tuple(_rest(now, rests[card.maker], card, share - sum(demand.bytes for demand in mine)))
        found += [*mine, *rest]
        if not settings.kv_memory_bytes and not settings.blocks_override:
            beside = {part.demand(card.index) for part in rests[card.maker].beside}
            ceilings[card.index] = share + sum(demand.bytes for demand in rest if demand in beside)
    least = ceil(least_card_bytes(settings, now.weights, now.rest, now.demands))
    return tuple(found), CardRule(headroom=0.0, ceilings=ceilings, least_bytes=least)


def beside_unknown(now: Assessment, host: Host, model: ModelFacts | None) -> Iterator[str]:
    """What of the rest of a card has no figure."""
    if not now.settings.cpu and host.cards and now.memory.boot is None:
        yield from unknown_parts(host.cards[: now.settings.ranks], shape_of(now.settings), model)


def _rest(now: Assessment, rest: Rest, card: Card, left: int) -> Iterator[Demand]:
    """Beside weights and cache. A boot that was seen says what they left of the share; else every part is estimated."""
    if now.memory.boot is not None and now.weights is not None:
        what = "activations, graphs and context: what that boot left of the share"
        yield Demand("activation", "device", "", max(0, left), what, "log", card.index)
        return
    yield from (part.demand(card.index) for part in (*rest.counted, *rest.beside))
    if now.memory.blind and rest.floor is not None:
        more = int(rest.floor.best) - sum(int(part.size.best) for part in rest.counted)
        what = "more that public boots hold beside these, at their middle"
        yield Demand("unknown", "device", "", max(0, more), what, "assumed", card.index, 0, int(rest.floor.high))
