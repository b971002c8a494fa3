"""Which endpoint on which host, as a question about sets: no cards, no memory, no engines. Pure.

A *site* takes a set of endpoints or does not; an oracle says so. Sites that are alike (what they have, what may lie
there, what lies there) are counted and not told apart, so the work grows with the kinds of hosts, not with the hosts.
What is wanted, in this order: every replica placed; where the plan holds rather than where it is unknown; what lies
somewhere stays there. First by sorting (``first_fit``); what that leaves open by a solver (``milp``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

Grade = Literal["holds", "unknown"]
Names = frozenset[str]
NOTHING: Names = frozenset()


class Oracle(Protocol):
    """Knows what a site takes."""

    def fits(self, base: Hashable, names: Names) -> Grade | None:
        """Whether a site with this base takes exactly this set; where it does, it takes every part of it."""
        ...


@dataclass(frozen=True, slots=True)
class Item:
    """An endpoint: ``replicas`` on so many sites, each of them over ``nodes`` sites of one base."""

    name: str
    replicas: int
    nodes: int = 1

    @property
    def wanted(self) -> int:
        """Sites that it is to lie on."""
        return self.replicas * self.nodes


@dataclass(frozen=True, slots=True)
class Kind:
    """Sites that are alike. ``must`` has to lie there, ``allowed`` may (``must`` is part of it), ``current`` does."""

    base: Hashable
    allowed: Names
    must: Names = NOTHING
    current: Names = NOTHING


@dataclass(frozen=True)
class Problem:
    """Items in the order in which sorting places them, sites by name in the order in which they are filled."""

    items: tuple[Item, ...]
    sites: Mapping[str, Kind]
    oracle: Oracle
    apart: tuple[Names, ...] = ()
    """Sets of which no two may lie on one site."""

    def takes(self, kind: Kind, names: Names) -> Grade | None:
        """The oracle's word, where no rule forbids the set."""
        if not names <= kind.allowed or any(len(names & rule) > 1 for rule in self.apart):
            return None
        if len(names) > 1 and any(item.nodes > 1 and item.name in names for item in self.items):
            return None
        return self.oracle.fits(kind.base, names)

    def kinds(self) -> dict[Kind, list[str]]:
        """The sites of each kind, in order."""
        found: dict[Kind, list[str]] = {}
        for name, kind in self.sites.items():
            found.setdefault(kind, []).append(name)
        return found


@dataclass(frozen=True)
class Placement:
    """The answer. ``proven``: no placement is better by the order above; False: not proven, ``why`` says why."""

    at: Mapping[str, Names]
    unplaced: Mapping[str, int]
    """Replicas that lie nowhere, by endpoint."""
    moves: int = 0
    doubtful: int = 0
    """Sites that take their set only by a plan that is unknown."""
    proven: bool = False
    why: str = ""
    unplaced_proven: bool = True
    """False if another placement may leave less unplaced."""
    spare_proven: bool = True
    """False if a loss that is not survived may be one that another placement survives."""

    @property
    def complete(self) -> bool:
        """True if every replica lies somewhere."""
        return not self.unplaced


def assess(problem: Problem, at: Mapping[str, Names], *, proven: bool = False, why: str = "") -> Placement:
    """What a distribution comes to."""
    unplaced: dict[str, int] = {}
    for item in problem.items:
        if missing := item.replicas - replicas_at(problem, at, item):
            unplaced[item.name] = missing
    doubtful = sum(problem.takes(problem.sites[site], names) == "unknown" for site, names in at.items() if names)
    return Placement(dict(at), unplaced, moved(problem, at), doubtful, proven, why)


def replicas_at(problem: Problem, at: Mapping[str, Names], item: Item) -> int:
    """Whole replicas of an item: those over several sites need all of them, of one base."""
    bases = Counter(problem.sites[site].base for site, names in at.items() if item.name in names)
    return min(item.replicas, sum(count // item.nodes for count in bases.values()))


def moved(problem: Problem, at: Mapping[str, Names]) -> int:
    """What has to leave a site although it is still wanted somewhere."""
    total = 0
    for item in problem.items:
        has = [site for site, kind in problem.sites.items() if item.name in kind.current]
        left = sum(item.name not in at.get(site, NOTHING) for site in has)
        total += max(0, left - max(0, len(has) - item.wanted))
    return total


@dataclass(frozen=True, slots=True)
class _State:
    kind: Kind
    have: Names


def first_fit(problem: Problem) -> Placement:
    """By sorting: what lies somewhere stays where it may, the rest goes where something lies already, else to the next
    empty site. Not proven to be the best, unless nothing is left to wish for."""
    at = _kept(problem)
    states: dict[_State, list[str]] = {}
    for site, have in at.items():
        states.setdefault(_State(problem.sites[site], have), []).append(site)
    for item in sorted(problem.items, key=lambda item: item.nodes == 1):
        missing = item.wanted - sum(len(sites) for state, sites in states.items() if item.name in state.have)
        if item.nodes > 1:
            _fill_groups(problem, item, missing // item.nodes, states)
            continue
        while missing > 0 and (found := _best(problem, item.name, states)):
            taken = states[found][:missing]
            _advance(states, found, taken, found.have | {item.name})
            missing -= len(taken)
    at = {site: state.have for state, sites in states.items() for site in sites}
    sorted_in = assess(problem, {site: at[site] for site in problem.sites})
    perfect = sorted_in.complete and not sorted_in.moves and not sorted_in.doubtful
    why = "" if perfect else "placed by sorting"
    return replace(sorted_in, proven=perfect, why=why, unplaced_proven=sorted_in.complete)


def _kept(problem: Problem) -> dict[str, Names]:
    """What stays: all that must, and of what lies there as much as the site takes, none more often than wanted."""
    order = [item.name for item in problem.items]
    at: dict[str, Names] = {}
    for kind, sites in problem.kinds().items():
        have = NOTHING
        for name in sorted(kind.must | kind.current, key=lambda name: (name not in kind.must, _index(order, name))):
            if name in kind.must or problem.takes(kind, have | {name}):
                have |= {name}
        at |= dict.fromkeys(sites, have)
    for item in problem.items:
        mine = [site for site in reversed(list(problem.sites)) if item.name in at[site]]
        spare = len(mine) - item.wanted
        for site in [site for site in mine if item.name not in problem.sites[site].must][: max(0, spare)]:
            at[site] -= {item.name}
        if item.nodes > 1:
            whole_groups(problem, item, at)
    return {site: at[site] for site in problem.sites}


def _index(order: Sequence[str], name: str) -> int:
    return order.index(name) if name in order else len(order)


def whole_groups(problem: Problem, item: Item, at: dict[str, Names]) -> None:
    """A replica over several sites that lacks one of them holds none of the others."""
    bases: dict[Hashable, list[str]] = {}
    for site in problem.sites:
        if item.name in at[site]:
            bases.setdefault(problem.sites[site].base, []).append(site)
    for sites in bases.values():
        for site in sites[len(sites) // item.nodes * item.nodes :]:
            at[site] -= {item.name}


def _fill_groups(problem: Problem, item: Item, replicas: int, states: dict[_State, list[str]]) -> None:
    mine = frozenset({item.name})
    bases = dict.fromkeys(state.kind.base for state in states)
    for base in bases:
        while replicas > 0:
            free = [
                (state, site)
                for state, sites in states.items()
                if state.kind.base == base and not state.have and problem.takes(state.kind, mine)
                for site in sites
            ]
            if len(free) < item.nodes:
                break
            for state, site in free[: item.nodes]:
                _advance(states, state, [site], mine)
            replicas -= 1


def _best(problem: Problem, name: str, states: Mapping[_State, list[str]]) -> _State | None:
    """The state that takes one more: where the plan holds, where most lies already, the first."""
    best: tuple[tuple[bool, int], _State] | None = None
    for state, sites in states.items():
        if not sites or name in state.have or name not in state.kind.allowed:
            continue
        if grade := problem.takes(state.kind, state.have | {name}):
            score = (grade != "holds", -len(state.have))
            if best is None or score < best[0]:
                best = (score, state)
    return best[1] if best else None


def _advance(states: dict[_State, list[str]], state: _State, sites: Iterable[str], have: Names) -> None:
    gone = set(sites)
    states.setdefault(_State(state.kind, have), []).extend(site for site in states[state] if site in gone)
    states[state] = [site for site in states[state] if site not in gone]


def patterns(problem: Problem, kind: Kind, most: int) -> Iterator[tuple[Names, Grade]]:
    """Every set that a kind of site takes, with what must lie there; at most ``most`` and one more."""
    start = kind.must
    grade = problem.takes(kind, start)
    if grade is None:
        yield start, "unknown"  # what must lie there lies there, whatever the plan says
        return
    names = [item.name for item in problem.items if item.name in kind.allowed and item.name not in start]
    level: list[tuple[Names, int, Grade]] = [(start, 0, grade)]
    count = 0
    while level:
        have, begin, grade = level.pop()
        yield have, grade
        count += 1
        if count > most:
            return
        for position in range(begin, len(names)):
            more = have | {names[position]}
            if found := problem.takes(kind, more):
                level.append((more, position + 1, found))
