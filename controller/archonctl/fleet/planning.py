"""``fleet plan``: where everything lies, judged; or where it is to lie; and what becomes of it without some hosts."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from archonctl.errors import ArchonError, UsageError
from archonctl.fleet.answer import EndpointRow, FleetPlan, HostRow, LossRow, Move, Way
from archonctl.fleet.asked import Asked, asked, assigned_of, known_hosts
from archonctl.fleet.declared import DeclaredFleet
from archonctl.fleet.inventory import Inventory
from archonctl.fleet.knowledge import Knowledge
from archonctl.fleet.losses import losses
from archonctl.fleet.place import NOTHING, Kind, Names, Placement, Problem, assess, first_fit, replicas_at
from archonctl.fleet.rooms import Base
from archonctl.fleet.together import Judge
from archonctl.fleet.ways import MOST_KINDS, kinds_by_size, reason, ways

DEFAULT_LIMIT_S = 30.0


@dataclass(frozen=True)
class Ask:
    """How: where facts are kept, which hosts are gone, seconds for the solver."""

    facts: Path
    environ: Mapping[str, str]
    without: tuple[str, ...] = ()
    limit_s: float = DEFAULT_LIMIT_S


def plan_fleet(inventory: Inventory, fleet: DeclaredFleet | None, ask: Ask) -> FleetPlan:
    """The answer. What is wrong with one host or one endpoint is told in its row.

    Raises UsageError ``fleet-host-unknown`` or ``fleet-solver-missing``, DeclarationError for a fleet file that
    contradicts itself or the inventory.
    """
    gone = tuple(dict.fromkeys(inventory.host(name).name for name in ask.without))
    if len(gone) >= len(inventory.hosts):
        raise UsageError("fleet-inventory-empty", "without these hosts the inventory has none")
    judge = Judge(Knowledge(ask.environ))
    if fleet is None:
        return _as_it_lies(inventory, judge, ask, gone)
    question = asked(inventory, fleet, ask.facts, judge)
    placement = solved(question.problem, ask.limit_s, spare=fleet.file.spare > 0)
    if gone:
        return _after(question, placement, gone, ask)
    return _answer(question, question.problem, placement, ask, spare=fleet.file.spare)


def solved(problem: Problem, limit_s: float, *, spare: bool = False) -> Placement:
    """By sorting, and by the solver where that leaves something to wish for."""
    found = first_fit(problem)
    if found.proven and not (spare and any(loss.unplaced for loss in losses(problem, found.at))):
        return found
    from archonctl.fleet.milp import improve

    return improve(problem, found, limit_s, spare=spare)


def _as_it_lies(inventory: Inventory, judge: Judge, ask: Ask, gone: Sequence[str]) -> FleetPlan:
    """Without a fleet file: every host as the inventory has it."""
    known = known_hosts(inventory, ask.facts, judge.knowledge)
    if gone:
        from archonctl.fleet.implied import implied_fleet

        question = asked(inventory, implied_fleet(inventory), ask.facts, judge)
        now = {site: kind.current for site, kind in question.problem.sites.items()}
        return _after(question, assess(question.problem, now), tuple(gone), ask)
    rows = tuple(
        HostRow(one, one.host.endpoints, judge.host(one.hardware, one.host.endpoints) if one.hardware else None)
        for one in known.values()
    )
    return FleetPlan(rows, tuple(_endpoints_of(rows, judge.knowledge)))


def _endpoints_of(rows: Iterable[HostRow], knowledge: Knowledge) -> Iterator[EndpointRow]:
    hosts: dict[str, list[str]] = {}
    first: dict[str, Path] = {}
    for row in rows:
        for one in row.assigned:
            hosts.setdefault(one.name, []).append(row.known.name)
            first.setdefault(one.name, one.declaration)
    for name, on in hosts.items():
        try:
            contract = knowledge.read(first[name]).loaded.endpoint.contract
        except ArchonError as err:
            yield EndpointRow(name, None, len(on), tuple(on), problem=err)
        else:
            yield EndpointRow(name, None, len(on), tuple(on), seqs=contract.seqs, len=contract.len)


def _after(question: Asked, before: Placement, gone: tuple[str, ...], ask: Ask) -> FleetPlan:
    """What becomes of a placement without some hosts: what lies elsewhere stays if that is possible at all."""
    sites = {
        site: replace(kind, current=before.at[site])
        for site, kind in question.problem.sites.items()
        if site not in gone
    }
    rest = replace(question.problem, sites=sites)
    found = _answer(question, rest, solved(rest, ask.limit_s), ask, spare=0, before=before)
    return replace(found, without=gone)


def _answer(
    question: Asked, problem: Problem, placement: Placement, ask: Ask, *, spare: int, before: Placement | None = None
) -> FleetPlan:
    asked_spare = bool(spare) and placement.complete
    lost = _losses(problem, placement, ask) if asked_spare else ()
    weak = {host for loss in lost for host in loss.hosts}
    rows = tuple(
        _row(question, site, placement.at[site], (site not in weak) if asked_spare and placement.at[site] else None)
        for site in problem.sites
    )
    endpoints = tuple(_endpoint_rows(question, problem, placement, before))
    start = {site: kind.current for site, kind in question.problem.sites.items()} if before is None else before.at
    return FleetPlan(
        rows,
        endpoints,
        tuple(_moves(start, placement.at)),
        placement.proven,
        placement.why,
        placement.unplaced_proven,
        spare,
        lost,
        placement.spare_proven,
        tuple(_spare_ways(question, problem, placement, ask)) if lost else (),
        notes=tuple(_notes(question)),
    )


def _row(question: Asked, site: str, names: Names, survived: bool | None) -> HostRow:
    known = question.known[site]
    assigned = assigned_of(question, site, names)
    before, now = {one.name for one in known.host.endpoints}, {one.name for one in assigned}
    together = None
    if base := question.bases.get(site):
        together = question.rooms.laid(base, names, question.cards[site])
    if together is None and known.hardware is not None:
        together = question.rooms.judge.host(known.hardware, assigned)
    return HostRow(known, assigned, together, tuple(sorted(now - before)), tuple(sorted(before - now)), survived)


def _endpoint_rows(
    question: Asked, problem: Problem, placement: Placement, before: Placement | None
) -> Iterator[EndpointRow]:
    items = {item.name: item for item in problem.items}
    for name, endpoint in question.wanted.items():
        contract = question.rooms.read(name).loaded.endpoint.contract
        hosts = tuple(site for site, names in placement.at.items() if name in names)
        placed = replicas_at(problem, placement.at, items[name])
        short = name in placement.unplaced
        asked_of = replace(question, problem=problem)
        pins = [host for pinned, host in question.refused_pins if pinned == name and host in placement.at]
        why = reason(asked_of, placement, name) if short else ""
        if pins:
            why = "; ".join([*(f"pinned to {host}, where it does not fit" for host in pins), *([why] if why else [])])
        yield EndpointRow(
            name,
            endpoint.replicas,
            placed,
            hosts,
            endpoint.nodes,
            contract.seqs,
            contract.len,
            None if before is None else replicas_at(question.problem, before.at, items[name]),
            why,
            ways(asked_of, placement, name) if short else (),
        )
    for name, err in question.unread.items():
        yield EndpointRow(name, None, 0, (), problem=err)


def _moves(start: Mapping[str, Names], at: Mapping[str, Names]) -> Iterator[Move]:
    """What leaves one host and comes to another; what only comes or only goes."""
    names = dict.fromkeys(name for held in (*start.values(), *at.values()) for name in sorted(held))
    for name in names:
        left = [site for site, held in start.items() if name in held and name not in at.get(site, NOTHING)]
        came = [site for site, held in at.items() if name in held and name not in start.get(site, NOTHING)]
        for number in range(max(len(left), len(came))):
            source = left[number] if number < len(left) else ""
            yield Move(name, source, came[number] if number < len(came) else "")


def _losses(problem: Problem, placement: Placement, ask: Ask) -> tuple[LossRow, ...]:
    deadline = time.monotonic() + ask.limit_s
    found = losses(problem, placement.at, deadline)
    return tuple(
        LossRow(loss.sites, tuple(sorted(loss.names)), tuple(sorted(loss.unplaced.items())), loss.proven)
        for loss in found
        if loss.unplaced
    )


def _spare_ways(question: Asked, problem: Problem, placement: Placement, ask: Ask) -> Iterator[Way]:
    """One more host of the smallest kind with which every loss is survived, what lies somewhere left there."""
    at = placement.at
    sites = {site: replace(kind, current=at[site]) for site, kind in problem.sites.items()}
    allowed = frozenset(item.name for item in problem.items)
    for hardware, like in kinds_by_size(question)[:MOST_KINDS]:
        more = replace(problem, sites={**sites, "+1": Kind(Base(hardware), allowed)})
        found = solved(more, ask.limit_s, spare=True)
        if found.complete and not any(loss.unplaced for loss in losses(more, found.at)):
            yield Way(f"1 more host like {like}")
            return


def _notes(question: Asked) -> Iterator[str]:
    unread = [known.name for known in question.known.values() if known.problem is not None]
    if unread:
        some = ", ".join(unread[:5]) + (", ..." if len(unread) > 5 else "")
        yield f"nothing is placed on {len(unread):,} hosts that are not known: {some}"
    if question.rooms.cut_short:
        yield "layouts with shared cards were not all searched to their end"
