"""The placement against every placement there is, on instances small enough to try them all."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, combinations, product

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from archonctl.fleet.losses import losses
from archonctl.fleet.milp import improve
from archonctl.fleet.place import NOTHING, Grade, Item, Kind, Names, Problem, assess, first_fit, moved, replicas_at

LIMIT_S = 60.0


@dataclass(frozen=True)
class Weights:
    """A site of base (size, doubt) takes what weighs no more than size; from doubt on its plan is unknown."""

    of: tuple[tuple[str, int], ...]

    def fits(self, base: Hashable, names: Names) -> Grade | None:
        assert isinstance(base, tuple)
        total = sum(weight for name, weight in self.of if name in names)
        return None if total > base[0] else "unknown" if total > base[1] else "holds"


@st.composite
def problems(draw: st.DrawFn, groups: bool = False) -> Problem:
    names = ["a", "b", "c"][: draw(st.integers(1, 3))]
    items = tuple(Item(name, draw(st.integers(0, 3)), draw(st.sampled_from((1, 2))) if groups else 1) for name in names)
    weights = Weights(tuple((name, draw(st.integers(1, 4))) for name in names))
    sites: dict[str, Kind] = {}
    some = st.frozensets(st.sampled_from(names))
    for number in range(draw(st.integers(1, 4))):
        size = draw(st.integers(0, 7))
        base = (size, draw(st.integers(max(0, size - 2), size)))
        allowed = draw(some) if draw(st.booleans()) else frozenset(names)
        sites[f"s{number}"] = Kind(base, allowed, NOTHING, draw(some))
    apart = (frozenset(draw(some)),) if draw(st.booleans()) else ()
    return Problem(items, sites, weights, apart)


def everything(problem: Problem) -> Iterator[dict[str, Names]]:
    """Every distribution that the sites take, none with more replicas than wanted, groups whole."""
    names = [item.name for item in problem.items]
    sets = [frozenset(s) for s in chain.from_iterable(combinations(names, size) for size in range(len(names) + 1))]
    takes = [[one for one in sets if problem.takes(kind, one)] or [NOTHING] for kind in problem.sites.values()]
    for chosen in product(*takes):
        at = dict(zip(problem.sites, chosen, strict=True))
        if all(
            sum(item.name in one for one in chosen) == replicas_at(problem, at, item) * item.nodes
            for item in problem.items
        ):
            yield at


def worth(problem: Problem, at: dict[str, Names]) -> tuple[int, int, int]:
    found = assess(problem, at)
    return sum(found.unplaced.values()), found.doubtful, found.moves


def survives(problem: Problem, at: dict[str, Names]) -> bool:
    """Whether the others take what lay on any one site, as they are: by trying everything.

    Where a site of a replica over several is lost, that replica has ended on the others too.
    """
    wanted = {item.name: replicas_at(problem, at, item) for item in problem.items}
    for lost in problem.sites:
        if not at[lost]:
            continue
        rest = replace(problem, sites={site: kind for site, kind in problem.sites.items() if site != lost})
        ended = {item.name for item in problem.items if item.nodes > 1 and item.name in at[lost]}
        if not any(
            all(at[site] - ended <= after[site] for site in rest.sites)
            and all(replicas_at(rest, after, item) >= wanted[item.name] for item in rest.items)
            for after in everything(rest)
        ):
            return False
    return True


QUICK = settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.parametrize("groups", [False, True], ids=["one-site", "over-sites"])
def test_the_solver_finds_what_trying_everything_finds(groups: bool) -> None:
    @QUICK
    @given(problems(groups))
    def holds(problem: Problem) -> None:
        best = min(worth(problem, at) for at in everything(problem))
        found = improve(problem, first_fit(problem), LIMIT_S)
        assert found.proven
        assert worth(problem, dict(found.at)) == best
        assert (sum(found.unplaced.values()), found.doubtful, found.moves) == best

    holds()


@QUICK
@given(problems(groups=True))
def test_sorting_places_nothing_that_a_site_does_not_take_and_claims_only_what_is_best(problem: Problem) -> None:
    found = first_fit(problem)
    assert list(found.at) == list(problem.sites)
    assert all(not names or problem.takes(problem.sites[site], names) for site, names in found.at.items())
    if found.proven:
        assert worth(problem, dict(found.at)) == (0, 0, 0) == min(worth(problem, at) for at in everything(problem))
    assert found == first_fit(problem)


@QUICK
@given(problems(groups=True))
def test_a_loss_is_survived_where_trying_everything_says_so(problem: Problem) -> None:
    found = first_fit(problem)
    seen = list(losses(problem, found.at))
    assert all(loss.proven for loss in seen)
    assert all(not loss.unplaced for loss in seen) == survives(problem, dict(found.at))


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(problems(groups=True))
def test_a_spare_is_found_where_there_is_one_and_its_lack_is_proven_where_there_is_none(problem: Problem) -> None:
    complete = [at for at in everything(problem) if not assess(problem, at).unplaced]
    found = improve(problem, first_fit(problem), LIMIT_S, spare=True)
    assert found.complete == bool(complete)
    if not complete:
        return
    good = [worth(problem, at) for at in complete if survives(problem, at)]
    assert found.spare_proven
    if good:
        assert survives(problem, dict(found.at))
        assert worth(problem, dict(found.at)) == min(good)
    else:
        assert worth(problem, dict(found.at)) == min(worth(problem, at) for at in complete)


def test_a_replica_over_sites_may_go_to_sites_of_another_base_as_a_whole() -> None:
    spans, other = Kind((4, 4), frozenset("a"), current=frozenset("a")), Kind((4, 3), frozenset("ab"))
    here = replace(other, current=frozenset("b"))
    sites = {"s0": spans, "s1": spans, "s2": other, "s3": here, "s4": here, "s5": other}
    problem = Problem((Item("a", 1, nodes=2), Item("b", 2)), sites, Weights((("a", 1), ("b", 1))))
    found = improve(problem, first_fit(problem), LIMIT_S, spare=True)
    assert (found.moves, survives(problem, dict(found.at))) == (0, True)
    fewer = replace(problem, sites={site: kind for site, kind in sites.items() if site != "s5"})
    kept = improve(fewer, first_fit(fewer), LIMIT_S, spare=True)
    assert kept.spare_proven
    assert [(loss.sites, loss.unplaced, loss.proven) for loss in losses(fewer, kept.at) if loss.unplaced] == [
        (("s0", "s1"), {"a": 1}, True)
    ]


def test_what_is_no_longer_wanted_leaves_without_being_a_move() -> None:
    sites = {f"s{number}": Kind((4, 4), frozenset("a"), NOTHING, frozenset("a")) for number in range(3)}
    problem = Problem((Item("a", 1),), sites, Weights((("a", 1),)))
    found = first_fit(problem)
    assert [site for site, names in found.at.items() if names] == ["s0"]
    assert moved(problem, found.at) == 0
    assert found.proven


def test_what_must_lie_somewhere_lies_there() -> None:
    here, there = Kind((4, 4), frozenset("ab")), Kind((4, 4), frozenset("ab"), frozenset("a"))
    problem = Problem((Item("a", 1), Item("b", 1)), {"s0": here, "s1": there}, Weights((("a", 4), ("b", 3))))
    found = improve(problem, first_fit(problem), LIMIT_S)
    assert found.at == {"s0": frozenset("b"), "s1": frozenset("a")}


def test_without_time_nothing_is_claimed() -> None:
    problem = Problem((Item("a", 2),), {"s0": Kind((1, 1), frozenset("a"))}, Weights((("a", 1),)))
    found = improve(problem, first_fit(problem), 0.0)
    assert not found.proven
    assert found.why == "the time was over"
    assert (found.unplaced, found.unplaced_proven) == ({"a": 1}, False)
    assert improve(problem, first_fit(problem), LIMIT_S).unplaced_proven
    assert not improve(problem, first_fit(problem), 0.0, spare=True).spare_proven
