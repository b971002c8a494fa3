"""How many cards an endpoint needs on a kind of host: the fewest of each kind of card with which its plan holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal

from archonctl.errors import ArchonError
from archonctl.fleet.declared import FleetEndpoint
from archonctl.fleet.knowledge import Cards, Hardware, Knowledge, Read
from archonctl.host.profile import Card, Host
from archonctl.plan.values import Plan

Grade = Literal["holds", "unknown"]
MOST_VECTORS = 512
"""Combinations of unlike cards that are tried for one endpoint on one kind of host."""


@dataclass(frozen=True, slots=True)
class Option:
    """So many cards of each kind, and what the plan says with them."""

    counts: tuple[int, ...]
    grade: Grade


@dataclass(frozen=True, slots=True)
class Choice:
    """Every option of an endpoint on a kind of host; where there is none, why not."""

    options: tuple[Option, ...]
    why: str = ""


class Options:
    """The options of every endpoint on every kind of host, each found once."""

    def __init__(self, knowledge: Knowledge, wanted: Mapping[str, tuple[FleetEndpoint, Read]]) -> None:
        self._knowledge = knowledge
        self._wanted = wanted
        self._choices: dict[tuple[str, Hardware], Choice] = {}
        self._on_cards: dict[str, bool] = {}

    def choice(self, name: str, hardware: Hardware) -> Choice:
        """The options of one endpoint on one kind of host, alone there."""
        key = (name, hardware)
        if key not in self._choices:
            self._choices[key] = self._chosen(name, hardware)
        return self._choices[key]

    def uses_cards(self, name: str, kinds: Sequence[Hardware]) -> None:
        """Tell whether an endpoint lies on cards wherever there are some: it then goes nowhere without them."""
        endpoint, read = self._wanted[name]
        if endpoint.cards is not None:
            self._on_cards[name] = endpoint.cards > 0
            return
        for hardware in kinds:
            plan = self._planned(read, hardware, None)
            if isinstance(plan, Plan) and any(one.scope == "device" for one in plan.forecast.demands):
                self._on_cards[name] = True
                return
        self._on_cards[name] = False

    def _chosen(self, name: str, hardware: Hardware) -> Choice:
        endpoint, read = self._wanted[name]
        kinds = card_kinds(hardware.host)
        if not self._on_cards.get(name, False):
            vectors = [(0,) * len(kinds)]
        else:
            vectors = _vectors([len(indices) for indices in kinds], endpoint.cards)
            if not vectors:
                count = len(hardware.host.cards)
                return Choice((), f"{endpoint.cards or 'one or more'} cards wanted, the host has {count}")
        return self._fewest(read, hardware, kinds, vectors)

    def _fewest(
        self, read: Read, hardware: Hardware, kinds: Sequence[Sequence[int]], vectors: Sequence[tuple[int, ...]]
    ) -> Choice:
        """Of what holds only what has no more cards than needed; where nothing does, the first that is unknown."""
        holding, doubtful, why = list[Option](), list[Option](), ""
        for counts in vectors:
            if any(all(a >= b for a, b in zip(counts, one.counts, strict=True)) for one in holding):
                continue
            cards = tuple(sorted(i for some, count in zip(kinds, counts, strict=True) for i in some[:count]))
            plan = self._planned(read, hardware, cards)
            if isinstance(plan, ArchonError):
                why = str(plan)
            elif plan.verdict == "holds":
                holding.append(Option(counts, "holds"))
            else:
                why = "; ".join(plan.reasons)
                if plan.verdict == "unknown":
                    doubtful.append(Option(counts, "unknown"))
        return Choice(tuple(holding)) if holding else Choice(tuple(doubtful[:1]), why)

    def _planned(self, read: Read, hardware: Hardware, cards: Cards | None) -> Plan | ArchonError:
        try:
            return self._knowledge.plan(read, hardware, cards)
        except ArchonError as err:
            return err


def several(hardware: Hardware, count: int) -> Hardware:
    """So many equal hosts as one: their cards counted on, their RAM together."""
    host, cards = hardware.host, list[Card]()
    step = max((card.index for card in host.cards), default=0) + 1
    for number in range(count):
        cards += [card.model_copy(update={"index": card.index + number * step}) for card in host.cards]
    names = ("ram_mib", "cgroup_limit_mib", "hugepages_mib")
    ram = {name: mib * count for name in names if (mib := getattr(host, name)) is not None}
    joined = host.model_copy(update={"cards": tuple(cards), **ram})
    return Hardware(f"{count} x {hardware.key}", joined, hardware.profile)


def card_kinds(host: Host) -> list[list[int]]:
    """Indices of the host's cards, those that are alike together, in the order of the first of each.

    What a card is called is no part of what it has.
    """
    kinds: dict[str, list[int]] = {}
    for card in sorted(host.cards, key=lambda card: card.index):
        kinds.setdefault(_kind(card), []).append(card.index)
    return list(kinds.values())


def _kind(card: Card) -> str:
    apart = {"index": True, "name": True, "pci": True, "free_mib": True, "gtt_free_mib": True}
    return card.model_dump_json(exclude={**apart, "settle": {"source"}})


def _vectors(most: Sequence[int], exactly: int | None) -> list[tuple[int, ...]]:
    """Counts of each kind from few cards to many; one kind before a mixture."""
    size = 1
    for count in most:
        size *= count + 1
    ranges = [range(count + 1) for count in most]
    found = product(*ranges) if size <= MOST_VECTORS else _pure(most)
    vectors = [counts for counts in found if sum(counts) and exactly in (None, sum(counts))]
    return sorted(vectors, key=lambda counts: (sum(counts), sum(1 for count in counts if count), counts))


def _pure(most: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Of hosts with many kinds of card: cards of one kind only."""
    for kind, count in enumerate(most):
        for number in range(1, count + 1):
            yield tuple(number if at == kind else 0 for at in range(len(most)))
