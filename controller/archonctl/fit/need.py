"""What a candidate needs of each card, by the engine's own law; nothing here counts a byte by itself.

The law is asked on cards that are large enough for anything. What it asks of them says what every smaller card must
have, so that one answer serves for all cards of a maker.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import ceil

from archonctl.engines import adapter
from archonctl.engines.base import Forecast
from archonctl.fit.declare import STATIC_SHARE, Candidate, Maker, endpoint_of
from archonctl.host.profile import MAX_CARD_MIB, Card, Host
from archonctl.memory.demand import Demand
from archonctl.memory.interval import MIB, Interval
from archonctl.model.geometry import ModelFacts
from archonctl.plan.build import build_plan
from archonctl.plan.values import Plan

HUGE_BYTES = MAX_CARD_MIB * MIB
"""Memory of the cards that the law is asked on."""


@dataclass(frozen=True, slots=True)
class Need:
    """Bytes of the fullest card. ``must`` is what it has to have for "fits", ``est`` what would be used there.

    ``problem`` is why the declaration is impossible whatever the card (code and words), ``unknown`` why the law says
    nothing; "" otherwise.
    """

    est: Interval
    must: float
    weights_bytes: int
    kv_bytes: int
    host_bytes: int = 0
    problem: tuple[str, str] = ("", "")
    unknown: str = ""


@cache
def huge_host(tp: int, maker: Maker) -> Host:
    """``tp`` cards on which anything fits."""
    cards = tuple(Card(index=i, name="any card", total_mib=MAX_CARD_MIB, maker=maker) for i in range(tp))
    return Host(name="any", cards=cards)


def need_of(one: Candidate, facts: ModelFacts) -> Need:
    """What the candidate needs of cards that are all alike."""
    if not facts.weight_bytes:
        return _nothing(unknown="the weights are not there to count: nothing is claimed of their size")
    host = huge_host(one.tp, one.maker)
    stated = _stated_bytes(one, host, facts) if one.engine == "vllm" else 0
    plan = build_plan("fit", endpoint_of(one, stated), host, facts, detail=False)
    forecast = plan.forecast
    if forecast.problems:
        first = forecast.problems[0]
        return _nothing(problem=(first.code, f"{first.message} ({first.hint})" if first.hint else first.message))
    if plan.verdict != "holds":
        return _nothing(unknown=forecast.method if forecast.kv_tokens is None else "; ".join(plan.reasons))
    need = _share(forecast, one) if one.engine == "sglang" else _sums(forecast)
    return replace(need, must=max(need.must, forecast.card_rule.least_bytes))


def _nothing(problem: tuple[str, str] = ("", ""), unknown: str = "") -> Need:
    return Need(Interval.exact(0, "assumed"), 0.0, 0, 0, 0, problem, unknown)


def _stated_bytes(one: Candidate, host: Host, facts: ModelFacts) -> int:
    """The cache that the contract needs of one card, as vLLM's law says; 0 where it says nothing."""
    forecast = adapter(one.engine).forecast(endpoint_of(one), host, facts, detail=False)
    needed = forecast.cards[0].pool_needed_mib
    return ceil(needed * MIB) if needed else 0


def _sums(forecast: Forecast) -> Need:
    """An engine that allocates what it was told: the sum of what is asked of the fullest card."""
    device = [demand for demand in forecast.demands if demand.scope == "device"]
    cards = [[d for d in device if d.card in (None, card.index)] for card in forecast.cards]
    fullest = max(cards, key=lambda mine: _sum(mine).best, default=[])
    if not fullest:
        return _nothing(unknown="which card would hold what is not known")
    host = sum(demand.bytes for demand in forecast.demands if demand.scope == "host")
    est = _sum(fullest)
    return Need(est, est.best, _of(fullest, "weights"), _of(fullest, "kv_cache"), host)


def _share(forecast: Forecast, one: Candidate) -> Need:
    """SGLang takes its share whatever is asked: the share must hold weights and cache at the cautious end, and the rest
    of the card what lies outside."""
    mine = [demand for demand in forecast.demands if demand.card in (None, 0)]
    pools = _sum([demand for demand in mine if demand.cls == "kv_cache"])
    others = _sum([demand for demand in mine if demand.cls not in ("kv_cache", "weights")])
    tokens, weights = forecast.kv_tokens, _of(mine, "weights")
    if tokens is None or not tokens.best:
        return _nothing(unknown=forecast.method)
    # One token more, since pools are counted in whole ones.
    needed = ceil(pools.best / tokens.best * (one.seqs * one.len + 1))
    taken = HUGE_BYTES * STATIC_SHARE
    inside = Interval(taken - pools.high, taken - pools.best, taken - pools.low, "assumed")
    est = Interval(
        needed + inside.low + others.low, needed + inside.best + others.best, needed + inside.high + others.high
    )
    outside = (weights + others.best - inside.best) / (1 - STATIC_SHARE)
    return Need(est, max((needed + inside.high) / STATIC_SHARE, outside), weights, needed)


def _of(demands: Sequence[Demand], cls: str) -> int:
    return sum(demand.bytes for demand in demands if demand.cls == cls)


def _sum(demands: Sequence[Demand]) -> Interval:
    """The bytes of some demands together, with their ends."""
    low = sum(d.bytes if d.low_bytes is None else d.low_bytes for d in demands)
    high = sum(d.bytes if d.high_bytes is None else d.high_bytes for d in demands)
    return Interval(low, sum(d.bytes for d in demands), high, "assumed")


def plan_of(one: Candidate, host: Host, facts: ModelFacts, need: Need) -> Plan:
    """The plan of the declaration that would be written, on the cards themselves."""
    return build_plan("fit", endpoint_of(one, need.kv_bytes), host, facts, detail=False)
