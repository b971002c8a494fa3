"""What the plan of the current release says, in samples. Made anew only when the release or the machine changes."""

from __future__ import annotations

from archonctl.deployment.schema import Endpoint
from archonctl.memory.demand import Capacity, Fit
from archonctl.memory.interval import MIB
from archonctl.observe.values import Sample, sample
from archonctl.plan.parked import expected_hits, parked
from archonctl.plan.values import Plan


def plan_look(name: str, plan: Plan) -> list[Sample]:
    """Capacity, demands and the fit of every scope."""
    samples: list[Sample] = []
    if (tokens := plan.forecast.kv_tokens) is not None:
        ends = {"low": tokens.low, "best": tokens.best, "high": tokens.high}
        samples += [sample("archon_planned_capacity_tokens", name, key, value=int(v)) for key, v in ends.items()]
    placed: dict[tuple[str, str, str, str], int] = {}
    for demand in plan.forecast.demands:
        key = (demand.cls, demand.scope, _card(demand.card), demand.dtype)
        placed[key] = placed.get(key, 0) + demand.bytes
    samples += [sample("archon_plan_bytes", name, *key, value=count) for key, count in placed.items()]
    for fit in plan.fits:
        samples += _fit(name, fit)
    if floor := plan.forecast.host_need.ttm_floor_mib:
        samples.append(sample("archon_ttm_floor_bytes", name, value=floor * MIB))
    return samples


def capacity_look(name: str, scope: str, card: int | None, capacity: Capacity) -> list[Sample]:
    """One scope of the machine as the plan saw it."""
    where = (name, scope, _card(card))
    samples = [
        sample("archon_capacity_known", *where, value=capacity.known),
        sample("archon_capacity_free_known", *where, value=capacity.free_known),
    ]
    if capacity.known:
        samples.append(sample("archon_capacity_bytes", *where, value=capacity.total_bytes))
    if capacity.free_known:
        samples.append(sample("archon_capacity_free_bytes", *where, value=capacity.free_bytes))
    return samples


def parked_look(name: str, endpoint: Endpoint, plan: Plan) -> list[Sample]:
    """What the engine's own caches hold of parked conversations, and the hits to expect of them and of the pool."""
    held = {each.cache.row.tier: each.tokens for each in parked(endpoint, plan)}
    samples = [
        sample("archon_parked_capacity_tokens", name, tier, value=int(tokens.low))
        for tier, tokens in held.items()
        if tokens is not None
    ]
    pool = plan.forecast.kv_tokens.best if plan.forecast.kv_tokens else None
    expected = expected_hits(endpoint, pool, sum(tokens.low for tokens in held.values() if tokens))
    if expected is not None:
        samples.append(sample("archon_prefix_hit_expected_ratio", name, value=expected))
    return samples


def _fit(name: str, fit: Fit) -> list[Sample]:
    where = (name, fit.scope, _card(fit.card))
    samples = [
        sample("archon_plan_want_bytes", *where, value=fit.want_bytes),
        sample("archon_plan_headroom_ratio", *where, value=fit.headroom),
    ]
    if fit.is_known:
        samples.append(sample("archon_plan_budget_bytes", *where, value=fit.budget_bytes))
        samples.append(sample("archon_plan_margin_bytes", *where, value=fit.margin_bytes))
    return samples


def _card(card: int | None) -> str:
    """A demand of each card, or one on the host, has no card of its own."""
    return "" if card is None else str(card)
