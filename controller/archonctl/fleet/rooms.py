"""Which sets of endpoints a host can take, and on which of its cards each would lie.

For each endpoint the fewest cards of each kind are found with which the plan holds; a set is then laid out card by
card, and the layout judged as a host is (``together``). Cards of one kind are alike, so the lowest numbers are taken
first, and an endpoint that lies somewhere already keeps its cards where the set allows that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Literal

from archonctl.errors import ArchonError
from archonctl.fleet.declared import FleetEndpoint
from archonctl.fleet.inventory import Assigned
from archonctl.fleet.knowledge import Cards, Hardware, Knowledge, Read
from archonctl.fleet.together import Judge, Together
from archonctl.host.profile import Card, Host
from archonctl.plan.values import Plan

Grade = Literal["holds", "unknown"]
MOST_VECTORS = 512
"""Combinations of unlike cards that are tried for one endpoint on one kind of host."""
MOST_STEPS = 2_000
"""Steps of one layout; cards that are not shared need a handful."""


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
    plan: Plan | None = None
    """Of the whole host, where there is no option."""


@dataclass(frozen=True, slots=True)
class Base:
    """What is on a host and not ours to move, beside its hardware. Equal bases take equal sets."""

    hardware: Hardware
    fixed: tuple[Assigned, ...] = ()


class Rooms:
    """Answers for every kind of host, each set once."""

    def __init__(self, judge: Judge, wanted: Mapping[str, tuple[FleetEndpoint, Read]]) -> None:
        self._judge = judge
        self._wanted = wanted
        self._choices: dict[tuple[str, Hardware], Choice] = {}
        self._laid: dict[tuple[Base, frozenset[str], tuple[tuple[str, Cards], ...]], Together | None] = {}
        self._on_cards: dict[str, bool] = {}
        self.cut_short = False
        """True if a layout was given up before it was searched to its end."""

    @property
    def knowledge(self) -> Knowledge:
        """Where plans come from."""
        return self._judge.knowledge

    def fits(self, base: Base, names: frozenset[str]) -> Grade | None:
        """Whether a host takes exactly this set beside what is fixed; None: it does not."""
        found = self.laid(base, names)
        if found is None:
            return None
        return "holds" if all(one.verdict == "holds" for one in found.endpoints if one.name in names) else "unknown"

    def laid(self, base: Base, names: frozenset[str], current: Mapping[str, Cards] | None = None) -> Together | None:
        """The judged layout of a set; ``current`` are the cards on which some of it lies now."""
        kept = tuple(sorted((name, cards) for name, cards in (current or {}).items() if name in names))
        key = (base, names, kept)
        if key not in self._laid:
            self._laid[key] = self._layout(base, names, dict(kept))
        return self._laid[key]

    def _layout(self, base: Base, names: frozenset[str], current: Mapping[str, Cards]) -> Together | None:
        before = self._judge.host(base.hardware, base.fixed)
        order = sorted(names, key=lambda name: (name not in current, -self._least_cards(base.hardware, name), name))
        steps = [MOST_STEPS]
        for laid in self._walk(base, before, order, current, steps):
            judged = self._judge.host(base.hardware, (*base.fixed, *laid))
            if judged.verdict in ("holds", "unknown"):
                return judged
        if steps[0] <= 0:
            self.cut_short = True
        return None

    def _least_cards(self, hardware: Hardware, name: str) -> int:
        return min((sum(option.counts) for option in self.choice(name, hardware).options), default=0)

    def _walk(
        self, base: Base, before: Together, order: Sequence[str], current: Mapping[str, Cards], steps: list[int]
    ) -> Iterator[tuple[Assigned, ...]]:
        """Layouts one after the other; a card carries the names on it, and sharers may join sharers."""
        host = base.hardware.host
        load: dict[int, tuple[str, ...]] = {card.index: () for card in host.cards}
        for use in before.cards:
            load[use.index] = tuple(name for name, _mib in use.taken_mib)
        sharing = {one.name for one in base.fixed if one.share_cards}
        sharing |= {name for name in order if self._wanted[name][0].share_cards}

        def place(position: int, laid: tuple[Assigned, ...]) -> Iterator[tuple[Assigned, ...]]:
            if position == len(order):
                yield laid
                return
            name = order[position]
            share = name in sharing
            for cards in self._seats(host, name, base.hardware, load, sharing, current):
                steps[0] -= 1
                if steps[0] <= 0:
                    return
                for index in cards:
                    load[index] = (*load[index], name)
                yield from place(position + 1, (*laid, Assigned(self._path(name), cards, share)))
                for index in cards:
                    load[index] = load[index][:-1]

        yield from place(0, ())

    def _path(self, name: str) -> Path:
        return self._wanted[name][1].loaded.path

    def _seats(
        self,
        host: Host,
        name: str,
        hardware: Hardware,
        load: Mapping[int, tuple[str, ...]],
        sharing: set[str],
        current: Mapping[str, Cards],
    ) -> Iterator[Cards]:
        """Cards for one endpoint: where it lies now, then for each option shared cards, then the first free ones."""
        kinds = card_kinds(host)
        free = [[index for index in indices if not load[index]] for indices in kinds]
        choice = self.choice(name, hardware)
        tried: set[Cards] = set()
        if name in current and self._counts(current[name], kinds) in {option.counts for option in choice.options}:
            mine = current[name]
            if all(not load[index] or (name in sharing and set(load[index]) <= sharing) for index in mine):
                tried.add(mine)
                yield mine
        for option in choice.options:
            if name in sharing and sum(option.counts) == 1:
                kind = option.counts.index(1)
                seen: set[tuple[str, ...]] = set()
                for index in kinds[kind]:
                    if load[index] and set(load[index]) <= sharing and load[index] not in seen:
                        seen.add(load[index])
                        yield (index,)
            if all(len(some) >= count for some, count in zip(free, option.counts, strict=True)):
                chosen = [some[:count] for some, count in zip(free, option.counts, strict=True)]
                cards = tuple(sorted(index for some in chosen for index in some))
                if cards not in tried:
                    yield cards

    def _counts(self, cards: Cards, kinds: Sequence[Sequence[int]]) -> tuple[int, ...]:
        return tuple(sum(index in cards for index in indices) for indices in kinds)

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
        holding, doubtful, last = list[Option](), list[Option](), ""
        whole: Plan | None = None
        for counts in vectors:
            if any(all(a >= b for a, b in zip(counts, one.counts, strict=True)) for one in holding):
                continue
            cards = tuple(sorted(i for some, count in zip(kinds, counts, strict=True) for i in some[:count]))
            plan = self._planned(read, hardware, cards)
            if isinstance(plan, ArchonError):
                last = str(plan)
            elif plan.verdict == "holds":
                holding.append(Option(counts, "holds"))
            else:
                whole, last = plan, "; ".join(plan.reasons)
                if plan.verdict == "unknown":
                    doubtful.append(Option(counts, "unknown"))
        if holding:
            return Choice(tuple(holding))
        return Choice(tuple(doubtful[:1]), last, whole)

    def _planned(self, read: Read, hardware: Hardware, cards: Cards | None) -> Plan | ArchonError:
        try:
            return self.knowledge.plan(read, hardware, cards)
        except ArchonError as err:
            return err


def card_kinds(host: Host) -> list[list[int]]:
    """Indices of the host's cards, those that are alike together, in the order of the first of each."""
    kinds: dict[str, list[int]] = {}
    for card in sorted(host.cards, key=lambda card: card.index):
        kinds.setdefault(_kind(card), []).append(card.index)
    return list(kinds.values())


def _kind(card: Card) -> str:
    return card.model_dump_json(exclude={"index", "pci", "free_mib", "gtt_free_mib"})


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
