"""What an engine's own caches hold of parked conversations: tokens, not only bytes, and the hits to expect of them."""

from __future__ import annotations

from dataclasses import dataclass

from archonctl.deployment.schema import Endpoint
from archonctl.engines.host_cache import HostCache, host_caches
from archonctl.memory.interval import Interval
from archonctl.plan.price import KvPrice, kv_price, pool_bytes, ranks
from archonctl.plan.values import Plan


@dataclass(frozen=True, slots=True)
class Parked:
    """One cache with what it holds. ``tokens`` is None where its size or the price of a token is unknown."""

    cache: HostCache
    tokens: Interval | None
    working: str


def parked(endpoint: Endpoint, plan: Plan) -> tuple[Parked, ...]:
    """Every cache that the declaration switches on; needs a plan made with ``detail``."""
    price = kv_price(plan)
    return tuple(
        _of(cache, price, endpoint.contract.len) for cache in host_caches(endpoint, ranks(plan), pool_bytes(plan))
    )


def _of(cache: HostCache, price: KvPrice | None, length: int) -> Parked:
    if cache.bytes is None:
        return Parked(cache, None, cache.why_unknown)
    if price is None:
        return Parked(cache, None, "what a token weighs is not known")
    tokens = price.tokens_in(cache.bytes, length)
    working = f"{cache.bytes:,} bytes / ({price.working})"
    return Parked(cache, tokens, working)


def expected_hits(endpoint: Endpoint, pool_tokens: float | None, parked_tokens: float) -> float | None:
    """Share of prompt tokens that should come from a cache: ``reuse x min(1, tokens held / tokens that come back)``.

    It supposes that each of ``[tiers] conversations`` is as likely to come next as any other, whole conversations of
    the contract's length. None where ``[tiers] reuse`` is not declared, or the pool is unknown.
    """
    tiers, contract = endpoint.tiers, endpoint.contract
    if tiers.reuse is None or pool_tokens is None:
        return None
    comes_back = (tiers.conversations or contract.seqs) * contract.len
    return tiers.reuse * min(1.0, (pool_tokens + parked_tokens) / comes_back)
