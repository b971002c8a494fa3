"""From an inventory and a fleet file to the question that ``place`` answers."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from archonctl.engines.nodes import across
from archonctl.errors import ArchonError, DeclarationError
from archonctl.fleet.declared import DeclaredFleet, FleetEndpoint
from archonctl.fleet.facts import profile_of
from archonctl.fleet.host_variables import Assigned
from archonctl.fleet.inventory import Inventory, matching
from archonctl.fleet.knowledge import Cards, Hardware, Knowledge, Known, Read
from archonctl.fleet.place import NOTHING, Grade, Item, Kind, Names, Problem
from archonctl.fleet.rooms import Base, Rooms
from archonctl.fleet.together import Judge


@dataclass(frozen=True)
class Asked:
    """Everything that a placement is asked of and told by."""

    known: Mapping[str, Known]
    bases: Mapping[str, Base]
    """Of the hosts that are known."""
    cards: Mapping[str, Mapping[str, Cards]]
    """By host and endpoint: the cards that the inventory names."""
    rooms: Rooms
    problem: Problem
    wanted: Mapping[str, FleetEndpoint]
    unread: Mapping[str, ArchonError] = field(default_factory=dict)
    """Endpoints whose declaration cannot be read, or that cannot run as they are declared."""
    refused_pins: tuple[tuple[str, str], ...] = ()
    """Endpoint and host: what is pinned where it does not fit."""


@dataclass(frozen=True)
class _Sites:
    """The oracle of ``place``: hosts of which nothing is known, or that hold too much already, take nothing."""

    rooms: Rooms

    def fits(self, base: Hashable, names: Names) -> Grade | None:
        return self.rooms.fits(base, names) if isinstance(base, Base) else None


def known_hosts(inventory: Inventory, facts: Path, knowledge: Knowledge) -> dict[str, Known]:
    """Every host with what it has."""
    return {host.name: knowledge.known(host, profile_of(host, facts)) for host in inventory.hosts}


def asked(inventory: Inventory, fleet: DeclaredFleet, facts: Path, judge: Judge) -> Asked:
    """The question. Raises DeclarationError ``fleet-host-unknown`` or ``declaration-contradiction`` (pins)."""
    known = known_hosts(inventory, facts, judge.knowledge)
    wanted, unread = _readable(fleet, judge.knowledge)
    rooms = Rooms(judge, wanted)
    hardware = list(dict.fromkeys(one.hardware for one in known.values() if one.hardware is not None))
    for name in wanted:
        rooms.options.uses_cards(name, hardware)
    names = [host.name for host in inventory.hosts]
    allowed = {name: _allowed(fleet, name, inventory, names) for name in wanted}
    pins = {name: _meant(fleet, name, "pins", inventory, names) for name in wanted}
    _check_pins(fleet, pins)
    apart = tuple(frozenset(rule) & frozenset(wanted) for rule in fleet.file.apart)
    refused: list[tuple[str, str]] = []
    sites: dict[str, Kind] = {}
    bases: dict[str, Base] = {}
    for host in inventory.hosts:
        current = frozenset(one.name for one in host.endpoints if one.name in wanted)
        may = frozenset(name for name in wanted if host.name in allowed[name])
        pinned = [name for name in wanted if host.name in pins[name]]
        found = known[host.name].hardware
        base = Base(found, tuple(one for one in host.endpoints if one.name not in wanted)) if found else None
        if base is None or rooms.fits(base, NOTHING) is None:
            sites[host.name] = Kind(host.name, current, current, current)
            refused += [(name, host.name) for name in pinned if name not in current]
            continue
        bases[host.name] = base
        must, not_there = _pinned(rooms, base, pinned, apart)
        refused += [(name, host.name) for name in not_there]
        sites[host.name] = Kind(base, may | must, must, current)
    items = tuple(_items(wanted, rooms, hardware))
    cards = {
        host.name: {one.name: one.cards for one in host.endpoints if one.cards is not None} for host in inventory.hosts
    }
    problem = Problem(items, sites, _Sites(rooms), tuple(rule for rule in apart if len(rule) > 1))
    declared = {name: endpoint for name, (endpoint, _read) in wanted.items()}
    return Asked(known, bases, cards, rooms, problem, declared, unread, tuple(refused))


def _readable(
    fleet: DeclaredFleet, knowledge: Knowledge
) -> tuple[dict[str, tuple[FleetEndpoint, Read]], dict[str, ArchonError]]:
    wanted: dict[str, tuple[FleetEndpoint, Read]] = {}
    unread: dict[str, ArchonError] = {}
    for name, endpoint in fleet.file.endpoints.items():
        try:
            read = knowledge.read(fleet.declarations[name])
            if endpoint.nodes > 1:
                with read.loaded.placing():
                    across(read.loaded.endpoint, endpoint.nodes, "leader", str(endpoint.nodes), "rank")
        except ArchonError as err:
            unread[name] = err
        else:
            wanted[name] = (endpoint, read)
    return wanted, unread


def _items(wanted: Mapping[str, tuple[FleetEndpoint, Read]], rooms: Rooms, kinds: Sequence[Hardware]) -> Iterator[Item]:
    """What needs most cards first, then what fits on fewest kinds of host, then as they are declared."""

    def hardness(name: str) -> tuple[int, int]:
        options = [rooms.options.choice(name, hardware).options for hardware in kinds]
        least = min((sum(one.counts) for some in options for one in some), default=0)
        return -least, sum(bool(some) for some in options)

    alone = {name: (0, 0) if endpoint.nodes > 1 else hardness(name) for name, (endpoint, _read) in wanted.items()}
    for name in sorted(wanted, key=lambda name: alone[name]):
        endpoint = wanted[name][0]
        yield Item(name, endpoint.replicas, endpoint.nodes)


def _meant(fleet: DeclaredFleet, name: str, key: str, inventory: Inventory, names: Sequence[str]) -> set[str]:
    """The hosts that a list of the fleet file means. A host that ``--limit`` leaves out is no mistake."""
    found: set[str] = set()
    for word in getattr(fleet.file.endpoints[name], key):
        everywhere = matching(word, inventory.groups.get("all", ()), inventory.groups)
        if not everywhere and word not in inventory.groups:
            message = f"endpoints.{name}.{key} names {word!r}, which is no host and no group of the inventory"
            raise DeclarationError("fleet-host-unknown", message, where=fleet.where("endpoints", name, key))
        found |= everywhere & set(names)
    return found


def _allowed(fleet: DeclaredFleet, name: str, inventory: Inventory, names: Sequence[str]) -> set[str]:
    only = _meant(fleet, name, "hosts", inventory, names) if fleet.file.endpoints[name].hosts else set(names)
    return only - _meant(fleet, name, "not_hosts", inventory, names)


def _check_pins(fleet: DeclaredFleet, pins: Mapping[str, set[str]]) -> None:
    for name, hosts in pins.items():
        endpoint = fleet.file.endpoints[name]
        if hosts and (endpoint.nodes > 1 or len(hosts) > endpoint.replicas):
            why = f"{endpoint.replicas} replicas" if endpoint.nodes == 1 else "a replica over several hosts"
            message = f"endpoints.{name}.pins means {len(hosts)} hosts, and there is {why}"
            hint = "raise replicas, or say where it may lie with hosts"
            where = fleet.where("endpoints", name, "pins")
            raise DeclarationError("declaration-contradiction", message, where=where, hint=hint)


def _pinned(rooms: Rooms, base: Base, names: Sequence[str], apart: Iterable[Names]) -> tuple[Names, list[str]]:
    must, refused = NOTHING, list[str]()
    for name in names:
        if rooms.fits(base, must | {name}) and all(len((must | {name}) & rule) < 2 for rule in apart):
            must |= {name}
        else:
            refused.append(name)
    return must, refused


def assigned_of(question: Asked, site: str, names: Names) -> tuple[Assigned, ...]:
    """The endpoints of a site with their cards, as the inventory would say it; where nothing is known as it does."""
    base = question.bases.get(site)
    laid = question.rooms.laid(base, names, question.cards[site]) if base else None
    if base is None or laid is None:
        return question.known[site].host.endpoints
    own = {card.index for card in base.hardware.host.cards}
    found = [one.assigned for one in laid.endpoints]
    return tuple(replace(one, cards=tuple(index for index in one.cards or () if index in own)) for one in found)
