"""Engines with tiers of their own: how much host memory they are worth, and what one that disappears costs."""

from __future__ import annotations

import json
from dataclasses import dataclass

from archonctl.deployment.schema import Endpoint
from archonctl.engines.host_cache import CacheRow, cache_rows
from archonctl.engines.knobs import Edition, edition, load_table
from archonctl.host.profile import Host
from archonctl.memory.interval import MIB, Interval
from archonctl.plan.parked import Parked, parked
from archonctl.plan.price import KvPrice, pool_bytes, ranks
from archonctl.plan.values import Plan
from archonctl.tiers.prefill import Prefill


@dataclass(frozen=True, slots=True)
class OwnTier:
    """One cache of the engine's own. ``refill_s``: how long prefilling all that it holds would take."""

    parked: Parked
    refill_s: Interval | None
    taken: bool
    """The declared version takes its flag."""


@dataclass(frozen=True, slots=True)
class Gift:
    """How much host memory to give. ``knobs`` are what to declare for it; bytes of all ranks together."""

    wanted_bytes: int
    """For the conversations that come back, whole."""
    room_bytes: int | None
    """What the host has for it, with what is declared already; None: unknown."""
    give_bytes: int | None
    """The lesser of both, in whole units of the knob; None: unknown. 0 where not one conversation would fit."""
    knobs: tuple[tuple[str, str], ...]
    why: str


@dataclass(frozen=True, slots=True)
class Loss:
    """A tier that another version has no more."""

    flag: str
    tier: str
    bytes: int | None
    tokens: Interval | None
    refill_s: Interval | None
    working: str


def own_tiers(endpoint: Endpoint, plan: Plan, prefill: Prefill | None) -> tuple[OwnTier, ...]:
    """The caches that the declaration switches on."""
    takes = _edition(endpoint, endpoint.engine.version)
    return tuple(
        OwnTier(
            each,
            prefill.seconds(each.tokens) if prefill and each.tokens else None,
            takes is None or takes.find(each.cache.row.flag) is not None,
        )
        for each in parked(endpoint, plan)
    )


def losses(endpoint: Endpoint, found: tuple[OwnTier, ...], version: str) -> tuple[Loss, ...]:
    """What of these tiers a version has neither under its flag nor under the flag's new name.

    Raises DeclarationError ``engine-version-invalid`` for a version that is none.
    """
    there = edition(load_table(endpoint.engine.kind), version)
    gone = []
    for own in found:
        row = own.parked.cache.row
        if own.taken and there.find(row.flag) is None and not _lives_on(row, there):
            gone.append(
                Loss(row.flag, row.tier, own.parked.cache.bytes, own.parked.tokens, own.refill_s, own.parked.working)
            )
    return tuple(gone)


def _lives_on(row: CacheRow, there: Edition) -> bool:
    """True if another flag of that version sizes the same tier."""
    return any(
        other.tier == row.tier and there.find(other.flag) is not None
        for other in cache_rows(row.engine)
        if other.flag != row.flag
    )


def gift(endpoint: Endpoint, plan: Plan, host: Host, price: KvPrice | None) -> Gift | None:
    """How much host memory the engine's own tier should get; None where this version sizes none in bytes."""
    takes = _edition(endpoint, endpoint.engine.version or load_table(endpoint.engine.kind).newest)
    rows = [row for row in cache_rows(endpoint.engine.kind) if row.tier == "dram" and row.per != "pool"]
    row = next((row for row in rows if takes is None or takes.find(row.flag)), None)
    if row is None or price is None:
        return None
    contract, tiers = endpoint.contract, endpoint.tiers
    each = price.bytes_of(contract.len)
    count = tiers.conversations or contract.seqs
    unit = row.unit_bytes * (ranks(plan) if row.per == "rank" else 1)
    wanted = -(-each * count // unit) * unit
    room, why_room = _room(plan, host)
    why = f"{count:,} x {contract.len:,} tokens are {each * count / MIB:,.0f} MiB; {why_room}"
    if room is None:
        return Gift(wanted, None, None, (), why)
    give = max(0, min(wanted, room // unit * unit))
    if give < each:
        return Gift(wanted, room, 0, (), f"{why}; not one conversation of {each / MIB:,.0f} MiB would fit")
    return Gift(wanted, room, give, _knobs(row, give, unit), why)


def _room(plan: Plan, host: Host) -> tuple[int | None, str]:
    """Bytes that the host has for parked conversations, those declared today included."""
    fit = next((each for each in plan.fits if each.scope == "host"), None)
    today = sum(d.bytes for d in plan.forecast.demands if d.scope == "host" and d.cls == "ddr_cache")
    if fit is None or not fit.is_known:
        return None, "the host's memory is not known"
    room, why = fit.margin_bytes + today, f"{fit.margin_bytes / MIB:,.0f} MiB of the host are left"
    now = None if host.ttm_pages_limit is None else host.ttm_pages_limit * host.page_bytes // MIB
    floor, limit = plan.forecast.host_need.ttm_floor_mib, host.ttm_target_mib or now
    if floor is not None and limit is not None:
        spare = (limit - floor) * MIB
        why += f", {spare / MIB:,.0f} MiB below the limit of pinned memory"
        room = min(room, spare + today)
    return max(0, room), why + (f", {today / MIB:,.0f} MiB are given today" if today else "")


def _knobs(row: CacheRow, give: int, unit: int) -> tuple[tuple[str, str], ...]:
    value = give // unit
    if row.json:
        inner = {row.json.rpartition(".")[2]: value}
        config = {"kv_connector": "OffloadingConnector", "kv_role": "kv_both", "kv_connector_extra_config": inner}
        return ((row.flag, json.dumps(config)),)
    switch = ((row.switch, "true"),) if row.switch else ()
    return (*switch, (row.flag, str(value)))


def pool_tokens(plan: Plan) -> float | None:
    """Tokens of the engine's own pool, by the plan; None where it does not say."""
    return plan.forecast.kv_tokens.best if plan.forecast.kv_tokens and pool_bytes(plan) is not None else None


def _edition(endpoint: Endpoint, version: str) -> Edition | None:
    return edition(load_table(endpoint.engine.kind), version) if version else None
