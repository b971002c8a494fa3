"""Why an endpoint lies nowhere, and the smallest change that was tried and would place it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from archonctl.errors import ArchonError
from archonctl.fleet.answer import Way
from archonctl.fleet.asked import Asked
from archonctl.fleet.knowledge import Hardware, shown
from archonctl.fleet.place import Item, Kind, Names, Placement, Problem, first_fit
from archonctl.fleet.rooms import Base
from archonctl.host.profile import Host

MOST_KINDS = 8
"""Kinds of hosts for which ways are tried."""


def reason(question: Asked, placement: Placement, name: str) -> str:
    """What stands in the way on each host, the same on several counted."""
    counts: Counter[str] = Counter()
    for site, kind in question.problem.sites.items():
        counts[_at(question, placement, site, kind, name)] += 1
    if not counts:
        return "no host is left"
    return "; ".join(f"{count:,} {'host' if count == 1 else 'hosts'}: {why}" for why, count in counts.most_common(6))


def _at(question: Asked, placement: Placement, site: str, kind: Kind, name: str) -> str:
    have, rooms = placement.at[site], question.rooms
    if name in have:
        return "has a replica"
    base = question.bases.get(site)
    if base is None:
        return "nothing is known of it" if question.known[site].problem else "what lies there does not hold by itself"
    if name not in kind.allowed:
        return "not allowed there"
    if any(len((have | {name}) & rule) > 1 for rule in question.problem.apart):
        return "has an endpoint that it is to be apart from"
    return _room(question, base, have, name) if rooms.spans(name) == 1 else _several(base, have)


def _room(question: Asked, base: Base, have: Names, name: str) -> str:
    choice = question.rooms.options.choice(name, base.hardware)
    if not choice.options:
        return choice.why or "the contract does not hold there"
    return question.rooms.lacks(base, have, name)


def _several(base: Base, have: Names) -> str:
    return "has other endpoints" if have or base.fixed else "too few equal and empty hosts, or the contract is short"


def ways(question: Asked, placement: Placement, name: str) -> tuple[Way, ...]:
    """Changes that place it, each tried: rules first, then the declaration, then hosts, then less of it."""
    return (*_rules(question, placement, name), *_levers(question, name), *_hosts(question, placement, name))


def _placed(problem: Problem, placement: Placement, name: str) -> bool:
    """Whether sorting places more of it in a changed question, what lies somewhere left alone."""
    sites = {}
    for site, kind in problem.sites.items():
        at = placement.at.get(site, frozenset())
        sites[site] = replace(kind, must=at, current=at, allowed=kind.allowed | at)
    return name not in first_fit(replace(problem, sites=sites)).unplaced


def _rules(question: Asked, placement: Placement, name: str) -> Iterator[Way]:
    problem = question.problem
    apart = tuple(rule for rule in problem.apart if name not in rule)
    if apart != problem.apart and _placed(replace(problem, apart=apart), placement, name):
        yield Way(f"let it lie beside what it is apart from (apart without {name})")
    anywhere = {
        site: replace(kind, allowed=kind.allowed | {name}) if site in question.bases else kind
        for site, kind in problem.sites.items()
    }
    if anywhere != dict(problem.sites) and _placed(replace(problem, sites=anywhere), placement, name):
        where = next(s for s, kind in problem.sites.items() if s in question.bases and name not in kind.allowed)
        yield Way(f"allow more hosts, such as {where} (endpoints.{name}.hosts, not_hosts)")


def _levers(question: Asked, name: str) -> Iterator[Way]:
    """Where the contract holds on no kind of host: the plan's own levers on the one with most memory on cards."""
    from archonctl.plan.build import build_plan  # only a contract that does not hold needs a way out

    kinds = [hardware for hardware, _like in kinds_by_size(question)]
    if question.rooms.spans(name) > 1 or any(
        question.rooms.options.choice(name, hardware).options for hardware in kinds
    ):
        return
    read = question.rooms.read(name)
    if read.problem is not None or not kinds:
        return
    try:
        levers = build_plan(name, shown(read.loaded.endpoint), kinds[-1].host, read.model).forecast.levers
    except ArchonError:
        return  # the reason has said it
    yield from (Way(lever.text, lever.costs) for lever in levers[:2])


def _hosts(question: Asked, placement: Placement, name: str) -> Iterator[Way]:
    """More hosts of the smallest kind that takes it, and what the fleet holds without them."""
    missing = placement.unplaced.get(name, 0)
    nodes = question.rooms.spans(name)
    for hardware, like in kinds_by_size(question)[:MOST_KINDS]:
        base, count = Base(hardware), missing * nodes
        if question.rooms.fits(base, frozenset({name})) is None:
            continue
        sites = {f"+{number}": Kind(base, frozenset({name})) for number in range(count)}
        if not first_fit(Problem((Item(name, missing, nodes),), sites, question.problem.oracle)).unplaced:
            yield Way(f"{count:,} more {'host' if count == 1 else 'hosts'} like {like}")
            break
    item = next(item for item in question.problem.items if item.name == name)
    if item.replicas > missing:
        yield Way(f"replicas = {item.replicas - missing} in place of {item.replicas}", "less is promised")


def kinds_by_size(question: Asked) -> list[tuple[Hardware, str]]:
    """Every kind of host and the first of that kind, the one with least memory on cards first."""
    first: dict[Hardware, str] = {}
    for site, base in question.bases.items():
        first.setdefault(base.hardware, site)
    return sorted(first.items(), key=lambda one: _size(one[0].host))


def _size(host: Host) -> int:
    return sum(card.total_mib for card in host.cards) or (host.ram_mib or 0)
