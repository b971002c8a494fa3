"""What the KV cache of a conversation weighs, by the law that the plan rests on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from archonctl.memory.demand import Demand
from archonctl.memory.interval import MIB, Interval
from archonctl.plan.values import Plan


@dataclass(frozen=True, slots=True)
class KvPrice:
    """Bytes on all ranks together: for each token, and for each conversation whatever its length."""

    bytes_per_token: float
    bytes_per_conversation: float
    working: str
    """The arithmetic, with its numbers."""

    def bytes_of(self, tokens: int) -> int:
        """What one conversation of so many tokens weighs while it is at work."""
        return round(tokens * self.bytes_per_token + self.bytes_per_conversation)

    def tokens_in(self, size_bytes: float, length: int) -> Interval:
        """Tokens of parked conversations of ``length`` that fit in so many bytes.

        An engine may or may not park a conversation's recurrent state with its KV cache: the low end counts all of
        it, the high end none, and the best estimate is the high end.
        """
        high = size_bytes / self.bytes_per_token
        low = size_bytes / (self.bytes_per_token + self.bytes_per_conversation / max(1, length))
        return Interval(low, high, high)


def pool_bytes(plan: Plan) -> int | None:
    """The KV pool of all ranks; None where the plan does not know it."""
    sizes = [_whole(demand, ranks(plan)) for demand in plan.forecast.demands if demand.cls == "kv_cache"]
    return sum(sizes) if sizes else None


def ranks(plan: Plan) -> int:
    """Cards that each hold a share of the engine, at least 1."""
    cards = {d.card for d in plan.forecast.demands if d.scope == "device" and d.card is not None}
    terms = {term.name: term.value for term in plan.forecast.terms}
    return int(terms["ranks"]) if "ranks" in terms else max(1, len(cards))


def _whole(demand: Demand, count: int) -> int:
    """A demand of "each card" is there once a rank."""
    return demand.bytes * (count if demand.scope == "device" and demand.card is None else 1)


def kv_price(plan: Plan) -> KvPrice | None:
    """The price by the plan's terms and demands; None where its law does not say. Needs a plan made with ``detail``."""
    terms = {term.name: term.value for term in plan.forecast.terms}
    count = ranks(plan)
    if "kib_per_token" in terms:  # radiance: a law for one rank, every rank holds the same share
        kib, state = terms["kib_per_token"], terms.get("state", 0.0)
        working = f"{count} x {kib:g} KiB a token" + (f" + {count} x {state:g} MiB of state" if state else "")
        return KvPrice(count * kib * 1024, count * state * MIB, working)
    if "block_bytes" in terms and "g1_block" in terms and "g2_block" not in terms:  # vLLM with one group of layers
        size, tokens = terms["block_bytes"], terms["g1_block"]
        working = f"{count} x {size:,} bytes a block / {tokens:,} tokens"
        return KvPrice(count * size / tokens, 0.0, working)
    return _by_pool(plan, terms)


def _by_pool(plan: Plan, terms: Mapping[str, float]) -> KvPrice | None:
    """The pool over its tokens, recurrent states apart where the law names them."""
    size, tokens = pool_bytes(plan), plan.forecast.kv_tokens
    if not size or tokens is None or tokens.best <= 0:
        return None
    state, slots = terms.get("state_bytes", 0), max(1, int(terms.get("slots", 1)))
    each = (size - state) / tokens.best
    if each <= 0:
        return None
    working = f"{size - int(state):,} bytes / {int(tokens.best):,} tokens"
    return KvPrice(each, state / slots, working + (f" + {state / slots:,.0f} bytes of state" if state else ""))
