"""Which sets of endpoints a host can take, and on which of its cards each would lie.

For each endpoint the fewest cards of each kind are found with which the plan holds; a set is then laid out card by
card, and the layout judged as a host is (``together``). Cards of one kind are alike, so the lowest numbers are taken
first, and an endpoint that lies somewhere already keeps its cards where the set allows that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from archonctl.fleet.declared import FleetEndpoint
from archonctl.fleet.host_variables import Assigned
from archonctl.fleet.knowledge import Cards, Hardware, Read
from archonctl.fleet.options import Grade, Options, card_kinds, several
from archonctl.fleet.together import Judge, Together
from archonctl.host.profile import Host

MOST_STEPS = 2_000
"""Steps of one layout; cards that are not shared need a handful."""


@dataclass(frozen=True, slots=True)
class Base:
    """What is on a host and not ours to move, beside its hardware. Equal bases take equal sets."""

    hardware: Hardware
    fixed: tuple[Assigned, ...] = ()


class Rooms:
    """Answers for every kind of host, each set once."""

    def __init__(self, judge: Judge, wanted: Mapping[str, tuple[FleetEndpoint, Read]]) -> None:
        self.judge = judge
        self._wanted = wanted
        self.options = Options(judge.knowledge, wanted)
        self._laid: dict[tuple[Base, frozenset[str], tuple[tuple[str, Cards], ...]], Together | None] = {}
        self.cut_short = False
        """True if a layout was given up before it was searched to its end."""

    def fits(self, base: Base, names: frozenset[str]) -> Grade | None:
        """Whether a host takes exactly this set beside what is fixed; None: it does not."""
        found = self.laid(base, names)
        if found is None:
            return None
        return "holds" if all(one.verdict == "holds" for one in found.endpoints if one.name in names) else "unknown"

    def spans(self, name: str) -> int:
        """Hosts that one replica lies over."""
        return self._wanted[name][0].nodes

    def read(self, name: str) -> Read:
        """Its declaration."""
        return self._wanted[name][1]

    def lacks(self, base: Base, have: frozenset[str], name: str) -> str:
        """Why a host that has ``have``, and what is fixed there, does not take one more that has options."""
        before = self.laid(base, have) or self.judge.host(base.hardware, base.fixed)
        used = {use.index for use in before.cards if use.taken_mib}
        kinds = card_kinds(base.hardware.host)
        free = [[index for index in indices if index not in used] for indices in kinds]
        options = self.options.choice(name, base.hardware).options
        seats = [one for one in options if all(len(f) >= c for f, c in zip(free, one.counts, strict=True))]
        if not seats:
            least = min(sum(one.counts) for one in options)
            return f"{sum(map(len, free))} of {sum(map(len, kinds))} cards free, {least} wanted"
        cards = tuple(sorted(i for some, count in zip(free, seats[0].counts, strict=True) for i in some[:count]))
        more = Assigned(self._path(name), cards, self._wanted[name][0].share_cards)
        judged = self.judge.host(base.hardware, (*(one.assigned for one in before.endpoints), more))
        told = [one.message for one in judged.findings if one.severity == "error"]
        told += [reason for one in judged.endpoints for reason in one.reasons if one.verdict != "holds"]
        return told[0] if told else "the layout was not searched to its end"

    def laid(self, base: Base, names: frozenset[str], current: Mapping[str, Cards] | None = None) -> Together | None:
        """The judged layout of a set; ``current`` are the cards on which some of it lies now."""
        kept = tuple(sorted((name, cards) for name, cards in (current or {}).items() if name in names))
        key = (base, names, kept)
        if key not in self._laid:
            self._laid[key] = self._layout(base, names, dict(kept))
        return self._laid[key]

    def _layout(self, base: Base, names: frozenset[str], current: Mapping[str, Cards]) -> Together | None:
        if any(self.spans(name) > 1 for name in names):
            return self._over_hosts(base, names)
        before = self.judge.host(base.hardware, base.fixed)
        order = sorted(names, key=lambda name: (name not in current, -self._least_cards(base.hardware, name), name))
        steps = [MOST_STEPS]
        for laid in self._walk(base, before, order, current, steps):
            judged = self.judge.host(base.hardware, (*base.fixed, *laid))
            if judged.verdict in ("holds", "unknown"):
                return judged
        if steps[0] <= 0:
            self.cut_short = True
        return None

    def _over_hosts(self, base: Base, names: frozenset[str]) -> Together | None:
        """One endpoint on all cards of several such hosts, which are its own."""
        name = next(iter(names))
        if len(names) > 1 or base.fixed:
            return None
        joined = several(base.hardware, self.spans(name))
        cards = tuple(card.index for card in joined.host.cards)
        judged = self.judge.host(joined, (Assigned(self._path(name), cards),))
        return judged if judged.verdict in ("holds", "unknown") else None

    def _least_cards(self, hardware: Hardware, name: str) -> int:
        return min((sum(option.counts) for option in self.options.choice(name, hardware).options), default=0)

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
        choice = self.options.choice(name, hardware)
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
