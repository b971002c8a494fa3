"""What the loss of one site means: which endpoints lay on it, and whether the others take them as they are."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from archonctl.fleet.place import NOTHING, Kind, Names, Placement, Problem, first_fit, whole_groups


@dataclass(frozen=True, slots=True)
class Loss:
    """The loss of any one of ``sites``, which are alike. ``unplaced`` cannot be taken; empty: it is survived.

    ``proven`` is False where the time did not allow to be sure of what cannot be taken.
    """

    kind: Kind
    names: Names
    sites: tuple[str, ...]
    unplaced: Mapping[str, int]
    proven: bool = True


def losses(problem: Problem, at: Mapping[str, Names], deadline: float | None = None) -> Iterator[Loss]:
    """Every loss, those of sites that are alike once."""
    alike: dict[tuple[Kind, Names], list[str]] = {}
    for site, names in at.items():
        if names:
            alike.setdefault((problem.sites[site], names), []).append(site)
    for (kind, names), sites in alike.items():
        after = absorbed(problem, at, sites[0], deadline)
        missing = dict(after.unplaced)
        for item in problem.items:  # what lay nowhere before the loss is none of its consequences
            before = item.replicas - sum(item.name in held for held in at.values()) // item.nodes
            if before > 0 and item.name in missing:
                missing[item.name] = max(0, missing[item.name] - before)
        unplaced = {name: count for name, count in missing.items() if count}
        yield Loss(kind, names, tuple(sites), unplaced, not unplaced or after.unplaced_proven)


def absorbed(problem: Problem, at: Mapping[str, Names], lost: str, deadline: float | None = None) -> Placement:
    """The placement without a site, everything else where it is; what spanned it and others has ended on those too."""
    left = {site: at.get(site, NOTHING) for site in problem.sites if site != lost}
    rest = replace(problem, sites={site: problem.sites[site] for site in left})
    for item in problem.items:
        if item.nodes > 1:
            whole_groups(rest, item, left)
    kept = {
        site: replace(kind, must=left[site], current=left[site], allowed=kind.allowed | left[site])
        for site, kind in rest.sites.items()
    }
    rest = replace(problem, sites=kept)
    found = first_fit(rest)
    if found.complete:
        return found
    from archonctl.fleet.milp import improve

    left_s = 5.0 if deadline is None else max(0.0, deadline - time.monotonic())
    return improve(rest, found, left_s)
