"""Several endpoints on one host: each by its own plan, and all of them against what the host has once.

RAM is judged by ``plan.scopes`` over the demands of all, cards that are shared as well. The floors of the kernel's
limit of pinned memory add up: each unit raises that limit to its own floor only, unless the host states a target.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Literal

from archonctl.engines.base import CardRule, Forecast
from archonctl.errors import ArchonError, ModelError
from archonctl.findings import Finding, Place, refuses
from archonctl.fleet.host_variables import Assigned
from archonctl.fleet.knowledge import Cards, Hardware, Knowledge, Read
from archonctl.host.profile import Host
from archonctl.memory.demand import Demand, Fit
from archonctl.memory.interval import MIB
from archonctl.plan.scopes import judged_scopes
from archonctl.plan.values import Plan

HostVerdict = Literal["holds", "short", "unknown", "invalid"]
RAISE_SHARE = 0.9
"""The preflight raises the limit of pinned memory to nine tenths of RAM at most (scripts/ttm-preflight.sh)."""


@dataclass(frozen=True, slots=True)
class OnHost:
    """One endpoint where it lies. ``cards`` are those that something of it lies on; ``plan`` is None with a problem."""

    assigned: Assigned
    verdict: HostVerdict
    reasons: tuple[str, ...]
    cards: Cards
    plan: Plan | None
    problem: ArchonError | None = None
    taken_mib: Mapping[int, int] = field(default_factory=dict)
    """MiB of each card, the engine's own share of it where it fills that."""

    @property
    def name(self) -> str:
        """The endpoint."""
        return self.assigned.name


@dataclass(frozen=True, slots=True)
class CardUse:
    """One card: what each endpoint takes of it, and what is left (None where the engine alone knows)."""

    index: int
    name: str
    total_mib: int
    taken_mib: tuple[tuple[str, int], ...]
    free_mib: int


@dataclass(frozen=True, slots=True)
class Together:
    """The judgement of one host."""

    verdict: HostVerdict
    endpoints: tuple[OnHost, ...]
    cards: tuple[CardUse, ...]
    ram: Fit | None
    ttm_floor_mib: int | None
    ttm_limit_mib: int | None
    findings: tuple[Finding, ...]


class Judge:
    """Judges hosts, equal ones once."""

    def __init__(self, knowledge: Knowledge) -> None:
        self.knowledge = knowledge
        self._judged: dict[tuple[object, ...], Together] = {}

    def host(self, hardware: Hardware, assigned: Sequence[Assigned]) -> Together:
        """Everything on one host. What is wrong with one endpoint is its own verdict and hides no other."""
        key = (hardware.key, tuple(assigned))
        if key not in self._judged:
            self._judged[key] = self._together(hardware, assigned)
        return self._judged[key]

    def _together(self, hardware: Hardware, assigned: Sequence[Assigned]) -> Together:
        alone = [self._alone(hardware, one) for one in assigned]
        found = [*_clashes(alone), *_ports(alone, self.knowledge)]
        alone = [self._beside(hardware, one, alone) for one in alone]
        plans = [one.plan for one in alone if one.plan is not None]
        fits = judged_scopes(_merged(alone, self.knowledge), hardware.host) if plans else ()
        shared = {index for index, count in _counts(alone).items() if count > 1}
        found += [fit.finding for fit in fits if _counts_here(fit, shared) and len(plans) > 1 and fit.finding]
        floor, limit = _floor(plans), _limit_mib(hardware.host)
        found += _floor_findings(plans, floor, limit, hardware.host)
        ram = next((fit for fit in fits if fit.scope == "host"), None)
        verdict = _verdict(alone, found)
        return Together(verdict, tuple(alone), _cards(hardware.host, alone), ram, floor, limit, tuple(found))

    def _alone(self, hardware: Hardware, one: Assigned) -> OnHost:
        there = {card.index for card in hardware.host.cards}
        if missing := [index for index in one.cards or () if index not in there]:
            text = f"card {missing[0]} is none of the host's {len(there)} cards"
            return OnHost(one, "short", (text,), (), None)
        try:
            read = self.knowledge.read(one.declaration)
            plan = self.knowledge.plan(read, hardware, one.cards)
        except ArchonError as err:
            verdict: HostVerdict = "unknown" if isinstance(err, ModelError) else "invalid"
            return OnHost(one, verdict, (str(err),), one.cards or (), None, err)
        taken = taken_mib(plan, hardware.host, one.cards)
        return OnHost(one, plan.verdict, plan.reasons, tuple(sorted(taken)), plan, taken_mib=taken)

    def _beside(self, hardware: Hardware, one: OnHost, others: Sequence[OnHost]) -> OnHost:
        """The same where others lie on its cards: engines that fill what is free get less of it."""
        if one.plan is None or one.plan.forecast.card_rule.ceilings:
            return one
        outside: dict[int, int] = {}
        for other in others:
            if other.name != one.name:
                for index in set(one.cards) & set(other.cards):
                    outside[index] = outside.get(index, 0) + other.taken_mib[index]
        if not outside:
            return one
        try:
            plan = self.knowledge.plan(
                self.knowledge.read(one.assigned.declaration), hardware, one.assigned.cards, outside
            )
        except ArchonError as err:
            return replace(one, verdict="short", reasons=(str(err),))
        return replace(one, verdict=plan.verdict, reasons=plan.reasons)


def taken_mib(plan: Plan, host: Host, cards: Cards | None) -> dict[int, int]:
    """MiB of each card that an endpoint takes, without what the host profile counts as consumed beside engines.

    An engine that alone knows on which cards its memory lies takes all that it sees.
    """
    forecast = plan.forecast
    demands = [one for one in forecast.demands if one.scope == "device"]
    if not demands:
        return {}
    seen = [card for card in host.cards if cards is None or card.index in cards]
    shares = {share.index for share in forecast.cards}
    if forecast.card_rule.together and len(seen) > 1:
        return {card.index: card.total_mib for card in seen if card.index in shares}
    found: dict[int, int] = {}
    for card in seen:
        size = sum(one.bytes for one in demands if one.card in (None, card.index) and card.index in shares)
        size = max(size, forecast.card_rule.ceilings.get(card.index, 0)) if size else 0
        if size:
            found[card.index] = -(-size // MIB)
    return found


def _counts(endpoints: Iterable[OnHost]) -> dict[int, int]:
    found: dict[int, int] = {}
    for one in endpoints:
        for index in one.cards:
            found[index] = found.get(index, 0) + 1
    return found


def _counts_here(fit: Fit, shared: set[int]) -> bool:
    """The host's fit is about all of them, and so is that of a card that several share; unknown is not full."""
    return not fit.allows and (fit.scope == "host" or fit.card in shared)


def _merged(endpoints: Sequence[OnHost], knowledge: Knowledge) -> Forecast:
    """What all of them ask for, as one forecast; what an engine fills up to its own share is asked for as well.

    What several map of one file lies in RAM once: the kernel's page cache is of the file.
    """
    demands: list[Demand] = []
    mapped: set[tuple[str, Demand]] = set()
    for one in endpoints:
        if one.plan is None:
            continue
        mine = one.plan.forecast.demands
        read = _read(knowledge, one)
        model = read.loaded.endpoint.model.path if read else str(one.assigned.declaration)
        files = {(model, d) for d in mine if d.droppable}
        demands += [d for d in mine if (model, d) not in mapped]
        mapped |= files
        for index in one.plan.forecast.card_rule.ceilings:
            own = sum(d.bytes for d in mine if d.scope == "device" and d.card in (None, index))
            rest = one.taken_mib.get(index, 0) * MIB - own
            if rest > 0:
                demands.append(Demand("unknown", "device", "", rest, "the rest of the engine's share", card=index))
    rules = [one.plan.forecast.card_rule for one in endpoints if one.plan is not None]
    rule = CardRule(max(r.headroom for r in rules), counts_outside=any(r.counts_outside for r in rules))
    return replace(_empty(), demands=tuple(demands), card_rule=rule)


def _empty() -> Forecast:
    return Forecast("all endpoints of a host", None, None, None, (), ())


def _clashes(endpoints: Sequence[OnHost]) -> Iterator[Finding]:
    for one, other in combinations(endpoints, 2):
        both = sorted(set(one.cards) & set(other.cards))
        if both and not (one.assigned.share_cards and other.assigned.share_cards):
            which = f"card {both[0]}" if len(both) == 1 else f"cards {', '.join(map(str, both))}"
            message = f"{one.name} and {other.name} lie both on {which}"
            fix = "give each its own cards, or say share_cards for both"
            yield Finding("fleet-card-clash", "error", message, _place(other), fix)


def _ports(endpoints: Sequence[OnHost], knowledge: Knowledge) -> Iterator[Finding]:
    listening: list[tuple[OnHost, str]] = []
    for one in endpoints:
        if read := _read(knowledge, one):
            listening.append((one, read.loaded.endpoint.service.listen))
    for (one, first), (other, second) in combinations(listening, 2):
        if clash(first, second):
            message = f"{one.name} listens on {first}, {other.name} on {second}: one port of one host"
            yield Finding(
                "fleet-port-clash", "error", message, _place(other), "give one of them another service.listen"
            )


def _read(knowledge: Knowledge, one: OnHost) -> Read | None:
    try:
        return knowledge.read(one.assigned.declaration)
    except ArchonError:
        return None  # told as the endpoint's own problem


def clash(first: str, second: str) -> bool:
    """True if two ``host:port`` cannot be listened on at once."""
    (host, _, port), (other, _, its) = first.rpartition(":"), second.rpartition(":")
    return port == its and (host == other or bool({host, other} & {"0.0.0.0", "[::]", "*"}))


def _floor(plans: Iterable[Plan]) -> int | None:
    floors = [plan.forecast.host_need.ttm_floor_mib for plan in plans]
    known = [floor for floor in floors if floor is not None]
    return sum(known) if known else None


def _limit_mib(host: Host) -> int | None:
    """What the limit of pinned memory is raised to: the target, else what the preflight may."""
    most = None if host.ram_mib is None else int(host.ram_mib * RAISE_SHARE)
    found = [mib for mib in (host.ttm_target_mib, most) if mib is not None]
    return min(found) if found else None


def _floor_findings(plans: Sequence[Plan], floor: int | None, limit: int | None, host: Host) -> Iterator[Finding]:
    pinning = [plan for plan in plans if plan.forecast.host_need.ttm_floor_mib is not None]
    if floor is None:
        return
    names = " and ".join(plan.endpoint for plan in pinning)
    if limit is not None and floor > limit:
        message = f"{names} pin {floor:,} MiB, the limit is raised to {limit:,} at most: {floor - limit:,} MiB short"
        fix = "raise ttm_target_mib of the host profile, or place one of them elsewhere"
        yield Finding("fleet-ttm-short", "error", message, fix=fix)
    elif len(pinning) > 1 and host.ttm_target_mib is None:
        message = f"{names} pin {floor:,} MiB together, and each unit raises the limit to its own floor only"
        yield Finding("fleet-ttm-short", "warning", message, fix=f"ttm_target_mib = {floor} in the host profile")


def _verdict(endpoints: Sequence[OnHost], findings: Sequence[Finding]) -> HostVerdict:
    if refuses(findings) or any(one.verdict == "short" for one in endpoints):
        return "short"
    doubtful = any(one.code == "memory-unknown" for one in findings)
    words = {one.verdict for one in endpoints}
    return "invalid" if "invalid" in words else "unknown" if doubtful or "unknown" in words else "holds"


def _cards(host: Host, endpoints: Sequence[OnHost]) -> tuple[CardUse, ...]:
    found = []
    for card in host.cards:
        taken = tuple((one.name, one.taken_mib[card.index]) for one in endpoints if card.index in one.taken_mib)
        free = card.total_mib - sum(mib for _name, mib in taken) - (card.outside_mib if not taken else 0)
        found.append(CardUse(card.index, card.name, card.total_mib, taken, max(0, free)))
    return tuple(found)


def _place(one: OnHost) -> Place:
    return Place(str(one.assigned.declaration))
