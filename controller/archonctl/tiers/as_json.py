"""``archonctl.tiers-plan/1``: the answer of ``tiers plan`` for tools. Bytes are integers, unknown is null."""

from __future__ import annotations

from archonctl.memory.interval import Interval
from archonctl.tiers.explain import TiersPlan
from archonctl.tiers.own import Gift, Loss, OwnTier
from archonctl.tiers.values import Board, Decision, Placement, Tier

SCHEMA = "archonctl.tiers-plan/1"
Json = dict[str, object]


def tiers_plan_json(plan: TiersPlan) -> Json:
    """The whole value."""
    live = plan.live
    return {
        "schema": SCHEMA,
        "endpoint": plan.endpoint,
        "engine": {"kind": plan.engine, "version": plan.engine_version or None},
        "live": live
        and {
            "where": live.where,
            "prefill_tokens_per_s": live.prefill_tokens_per_s,
            "prefix_hit_ratio": live.prefix_hit_ratio,
        },
        "kv": plan.price
        and {
            "bytes_per_token": plan.price.bytes_per_token,
            "bytes_per_conversation": plan.price.bytes_per_conversation,
            "working": plan.price.working,
        },
        "prefill": plan.prefill and {"tokens_per_s": _ends(plan.prefill.tokens_per_s), "source": plan.prefill.source},
        "tiers": [_tier(plan.board, tier) for tier in plan.board.tiers],
        "now": plan.now and _placement(plan.now),
        "arriving_bytes": plan.arriving_bytes,
        "arrival": plan.arrival and _placement(plan.arrival),
        "own_tiers": [_own(each) for each in plan.own],
        "give": plan.gift and _gift(plan.gift),
        "expected_hit_ratio": plan.expected_hit_ratio,
        "to_version": plan.to_version or None,
        "losses": [_loss(each) for each in plan.losses],
        "unknown": list(plan.unknown),
    }


def _tier(board: Board, tier: Tier) -> Json:
    return {
        "name": tier.name,
        "is_memory": tier.is_memory,
        "capacity_bytes": tier.capacity_bytes,
        "high_water": board.mark(tier),
        "used_bytes": board.used_bytes(tier.name),
        "places": tier.places,
        "bandwidth_bytes_per_s": tier.bandwidth_bytes_per_s,
        "latency_s": tier.latency_s,
        "source": tier.source,
    }


def _placement(placement: Placement) -> Json:
    return {
        "pressed": list(placement.pressed),
        "decisions": [_decision(each) for each in placement.decisions],
        "steps": [
            {"do": step.kind.value, "conversation": step.item, "tier": step.tier, "bytes": step.bytes}
            for step in placement.steps
        ],
    }


def _decision(decision: Decision) -> Json:
    item = decision.item
    return {
        "conversation": item.id,
        "tier": item.tier,
        "tokens": item.tokens,
        "bytes": item.bytes,
        "in_use": item.in_use,
        "expected_uses": item.expected_uses,
        "recompute_s": decision.recompute_s,
        "round_trip_s": decision.round_trip_s,
        "decision": decision.action.value,
        "to_tier": decision.to_tier,
        "reason": decision.reason.value,
    }


def _own(own: OwnTier) -> Json:
    cache = own.parked.cache
    return {
        "tier": cache.row.tier,
        "flag": cache.row.flag,
        "what": cache.row.what,
        "declared": cache.declared,
        "taken": own.taken,
        "bytes": cache.bytes,
        "tokens": _ends(own.parked.tokens),
        "refill_s": _ends(own.refill_s),
        "working": own.parked.working,
        "source": cache.row.source,
    }


def _gift(gift: Gift) -> Json:
    return {
        "wanted_bytes": gift.wanted_bytes,
        "room_bytes": gift.room_bytes,
        "give_bytes": gift.give_bytes,
        "knobs": dict(gift.knobs),
        "why": gift.why,
    }


def _loss(loss: Loss) -> Json:
    return {
        "tier": loss.tier,
        "flag": loss.flag,
        "bytes": loss.bytes,
        "tokens": _ends(loss.tokens),
        "refill_s": _ends(loss.refill_s),
        "working": loss.working,
    }


def _ends(value: Interval | None) -> Json | None:
    return None if value is None else {"low": value.low, "best": value.best, "high": value.high}
