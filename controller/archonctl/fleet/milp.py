"""The placement as whole numbers of sites: how many of each kind take each set. Solved by HiGHS (MIT), in order.

One variable for each kind of site and set that it takes; sites that are alike are not told apart, so the model is small
however many there are. Each wish is minimised in turn and then held: replicas that lie nowhere, sites whose plan is
unknown, moves, sites that are used. With ``spare`` the loss of any one site must leave the others able to take what lay
on it, as they are: such a loss becomes part of the model once a solution does not survive it.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain, combinations
from typing import Literal

from archonctl.errors import UsageError
from archonctl.fleet.place import NOTHING, Grade, Item, Kind, Names, Placement, Problem, assess, patterns

Status = Literal["optimal", "infeasible", "time"]
MOST_PATTERNS = 20_000
"""Sets over all kinds of sites; more are not solved but sorted."""
MOST_ABSORBERS = 60_000
_SLACK = 1e-6


@contextmanager
def _without_banner() -> Iterator[None]:
    """HiGHS says its name on the process's stdout before it can be told not to, and stdout is the answer."""
    sys.stdout.flush()
    kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1)
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)


@dataclass
class _Model:
    """Columns and rows until they are solved; columns are whole numbers."""

    lower: list[float] = field(default_factory=list)
    upper: list[float] = field(default_factory=list)
    rows: list[tuple[float, float, list[int], list[float]]] = field(default_factory=list)

    def column(self, upper: float, lower: float = 0) -> int:
        self.lower.append(lower)
        self.upper.append(upper)
        return len(self.lower) - 1

    def row(self, low: float, high: float, terms: Sequence[tuple[int, float]]) -> None:
        self.rows.append((low, high, [index for index, _ in terms], [value for _, value in terms]))

    def solve(self, cost: Sequence[tuple[int, float]], deadline: float) -> tuple[Status, list[int], float]:
        """Status, the columns and the objective."""
        import highspy
        import numpy as np

        left = deadline - time.monotonic()
        if left <= 0:
            return "time", [], 0
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = len(self.lower), len(self.rows)
        costs = np.zeros(len(self.lower))
        for index, value in cost:
            costs[index] += value
        lp.col_cost_ = costs
        lp.col_lower_, lp.col_upper_ = np.array(self.lower, dtype=float), np.array(self.upper, dtype=float)
        lp.row_lower_ = np.array([row[0] for row in self.rows], dtype=float)
        lp.row_upper_ = np.array([row[1] for row in self.rows], dtype=float)
        lp.integrality_ = [highspy.HighsVarType.kInteger] * len(self.lower)
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        starts = np.cumsum([0, *(len(row[2]) for row in self.rows)])
        lp.a_matrix_.start_ = starts.astype(np.int32)
        lp.a_matrix_.index_ = np.array(list(chain.from_iterable(row[2] for row in self.rows)), dtype=np.int32)
        lp.a_matrix_.value_ = np.array(list(chain.from_iterable(row[3] for row in self.rows)), dtype=float)
        with _without_banner():
            solver = highspy.Highs()  # type: ignore[no-untyped-call]
        for name, value in (("output_flag", False), ("threads", 1), ("random_seed", 0), ("mip_rel_gap", 0.0)):
            solver.setOptionValue(name, value)
        solver.setOptionValue("mip_abs_gap", 0.5)  # every objective is a whole number
        solver.setOptionValue("time_limit", float(left))
        solver.passModel(lp)
        solver.run()
        status = solver.getModelStatus()
        if status == highspy.HighsModelStatus.kInfeasible:
            return "infeasible", [], 0
        values = list(solver.getSolution().col_value)
        found = [round(value) for value in values] if self._holds(values) else []
        done = status == highspy.HighsModelStatus.kOptimal and bool(found)
        return ("optimal" if done else "time"), found, round(sum(v * found[i] for i, v in cost)) if found else 0

    def _holds(self, values: Sequence[float]) -> bool:
        """True if the rounded columns satisfy every row: nothing is believed that was not checked."""
        if len(values) != len(self.lower):
            return False
        whole = [round(value) for value in values]
        for low, high, indices, factors in self.rows:
            total = sum(factor * whole[index] for index, factor in zip(indices, factors, strict=True))
            if total < low - _SLACK or total > high + _SLACK:
                return False
        return True


@dataclass(frozen=True, slots=True)
class _Use:
    """A column: so many sites of a kind take this set."""

    kind: Kind
    names: Names
    grade: Grade
    column: int


def improve(problem: Problem, found: Placement, limit_s: float, *, spare: bool = False) -> Placement:
    """A placement at least as good as ``found``, proven where the time allows; with ``spare`` one that survives the
    loss of any one site, or ``found`` where there is none (proven, too, with ``gaps``).

    Raises UsageError ``fleet-solver-missing`` where HiGHS is not installed.
    """
    _require()
    return _Search(problem, found, time.monotonic() + limit_s).run(spare)


def _require() -> None:
    try:
        import highspy  # noqa: F401
    except ImportError:
        hint = "pip install 'archonctl[fleet]'"
        raise UsageError(
            "fleet-solver-missing", "sorting does not place it all, and HiGHS is not installed", hint=hint
        ) from None


class _Search:
    def __init__(self, problem: Problem, found: Placement, deadline: float) -> None:
        self._problem, self._found, self._deadline = problem, found, deadline
        self._model = _Model()
        self._uses: list[_Use] = []
        self._by_kind: dict[Kind, list[_Use]] = {}
        self._sites = problem.kinds()
        self._missing: dict[str, int] = {}
        self._least_missing = False

    def run(self, spare: bool) -> Placement:
        if why := self._columns():
            return self._as_it_was(why, spare)
        self._demand()
        status, at = self._ordered()
        if at is None:
            return self._as_it_was("the time was over", spare)
        best = self._assessed(status, at)
        return self._surviving(best) if spare and best.complete else best

    def _surviving(self, best: Placement) -> Placement:
        """Provide for every loss that a solution does not survive, until one survives all of them."""
        for column in self._missing.values():
            self._model.upper[column] = 0  # to leave something out is no way to survive
        told: set[tuple[Kind, Names]] = set()
        absorbers = 0
        found = best
        while lost := [key for key in self._not_survived(found) if key not in told]:
            for kind, names in lost:
                told.add((kind, names))
                absorbers += self._loss(kind, names)
            if absorbers > MOST_ABSORBERS:
                return replace(best, why="too many losses to provide for", spare_proven=False)
            status, at = self._ordered()
            if at is None:
                proven = status == "infeasible"
                return replace(best, why="" if proven else "the time was over", spare_proven=proven)
            found = self._assessed(status, at)
        return found

    def _assessed(self, status: Status, at: Mapping[str, Names]) -> Placement:
        proven = status == "optimal"
        found = assess(self._problem, at, proven=proven, why="" if proven else "the time was over")
        return replace(found, unplaced_proven=found.complete or self._least_missing)

    def _as_it_was(self, why: str, spare: bool) -> Placement:
        """What sorting found; that no placement survives a loss was not shown either."""
        found = assess(self._problem, self._found.at, why=why)
        return replace(found, unplaced_proven=found.complete, spare_proven=not spare)

    def _columns(self) -> str:
        """Every set that every kind of site takes; why not, where they are too many."""
        for kind, sites in self._sites.items():
            for names, grade in patterns(self._problem, kind, MOST_PATTERNS):
                use = _Use(kind, names, grade, self._model.column(len(sites)))
                self._uses.append(use)
                self._by_kind.setdefault(kind, []).append(use)
                if len(self._uses) > MOST_PATTERNS:
                    return f"more than {MOST_PATTERNS:,} sets of endpoints are possible"
                if time.monotonic() > self._deadline:
                    return "the time was over"
        return ""

    def _demand(self) -> None:
        model = self._model
        for kind, sites in self._sites.items():
            model.row(len(sites), len(sites), [(use.column, 1) for use in self._by_kind[kind]])
        for item in self._problem.items:
            mine = [use for use in self._uses if item.name in use.names]
            missing = self._missing[item.name] = model.column(item.replicas)
            if item.nodes == 1:
                model.row(item.replicas, item.replicas, [*((use.column, 1) for use in mine), (missing, 1)])
                continue
            groups: list[tuple[int, float]] = [(missing, 1)]
            bases: dict[Hashable, list[_Use]] = {}
            for use in mine:
                bases.setdefault(use.kind.base, []).append(use)
            for uses in bases.values():
                group = model.column(item.replicas)
                groups.append((group, 1))
                model.row(0, 0, [*((use.column, 1) for use in uses), (group, -item.nodes)])
            model.row(item.replicas, item.replicas, groups)

    def _ordered(self) -> tuple[Status, dict[str, Names] | None]:
        """Each wish in turn, held for the next; the last, few sites, is not part of the proof."""
        rows = len(self._model.rows)
        columns = len(self._model.lower)
        found: list[int] = []
        status: Status = "optimal"
        wishes = [
            [(column, 1.0) for column in self._missing.values()],
            [(use.column, 1.0) for use in self._uses if use.grade == "unknown" and use.names],
            self._moves(),
            [(use.column, 1.0) for use in self._uses if use.names],
        ]
        for number, wish in enumerate(wishes):
            state, values, total = self._model.solve(wish, self._deadline)
            if state == "infeasible" and number == 0:
                status = "infeasible"
                break
            found = values or found
            self._least_missing |= number == 0 and state == "optimal"
            if state != "optimal":
                status = "time" if number < len(wishes) - 1 else status
                break
            self._model.row(-1, total, wish)
        del self._model.rows[rows:]
        del self._model.lower[columns:], self._model.upper[columns:]
        return status, self._named(found) if found else None

    def _moves(self) -> list[tuple[int, float]]:
        """A column an item: what leaves a site beyond what is no longer wanted."""
        found: list[tuple[int, float]] = []
        for item in self._problem.items:
            leaving = [use for use in self._uses if item.name in use.kind.current - use.names]
            if not leaving:
                continue
            has = sum(len(sites) for kind, sites in self._sites.items() if item.name in kind.current)
            column = self._model.column(has)
            surplus = max(0, has - item.wanted)
            self._model.row(-surplus, has, [(column, 1.0), *((use.column, -1.0) for use in leaving)])
            found.append((column, 1.0))
        return found

    def _named(self, values: Sequence[int]) -> dict[str, Names]:
        """Sets to sites by name: within a kind those that keep most first, then as they come."""
        at: dict[str, Names] = {}
        for kind, sites in self._sites.items():
            order = sorted(self._by_kind[kind], key=lambda use: (-len(use.names), sorted(use.names)))
            left = iter(sites)
            for use in order:
                for _ in range(values[use.column]):
                    at[next(left)] = use.names
        return {site: at.get(site, NOTHING) for site in self._problem.sites}

    def _not_survived(self, placement: Placement) -> list[tuple[Kind, Names]]:
        from archonctl.fleet.losses import losses

        return [
            (loss.kind, loss.names) for loss in losses(self._problem, placement.at, self._deadline) if loss.unplaced
        ]

    def _loss(self, kind: Kind, lost: Names) -> int:
        """The other sites take what lay on a lost one, as they are; how many columns that took."""
        model, before = self._model, len(self._model.lower)
        used = next(use for use in self._by_kind[kind] if use.names == lost)
        happens = model.column(1)
        model.row(-len(self._sites[kind]), 0, [(used.column, 1.0), (happens, -float(len(self._sites[kind])))])
        items = {item.name: item for item in self._problem.items}
        takers: dict[tuple[str, Hashable], list[tuple[int, float]]] = {}
        by_set = {(use.kind, use.names) for use in self._uses}
        for use in self._uses:
            # what spans sites takes empty ones, and nothing else lies with it
            open_names = sorted(name for name in lost - use.names if items[name].nodes == 1 or not use.names)
            parts = chain.from_iterable(combinations(open_names, size) for size in range(1, len(open_names) + 1))
            columns = []
            for part in parts:
                if (use.kind, use.names | set(part)) in by_set:
                    column = model.column(len(self._sites[use.kind]))
                    columns.append(column)
                    for name in part:
                        takers.setdefault((name, use.kind.base), []).append((column, 1.0))
            if columns:
                gone = [(happens, 1.0)] if use is used else []
                model.row(-len(self._problem.sites), 0, [*((c, 1.0) for c in columns), (use.column, -1.0), *gone])
        for name in lost:
            taken: list[tuple[int, float]] = []
            for (other, base), columns_of in takers.items():
                if other == name:
                    taken += self._whole(items[name], columns_of, stands=base == kind.base)
            model.row(0, len(self._problem.sites), [*taken, (happens, -1.0)])
        return len(model.lower) - before

    def _whole(self, item: Item, columns: list[tuple[int, float]], *, stands: bool) -> list[tuple[int, float]]:
        """Replicas that sites of one base take: one for each, also of an item that spans several where the others of
        it stand (the same base); elsewhere that needs all of its sites."""
        if item.nodes == 1 or stands:
            return columns
        group = self._model.column(item.replicas)
        self._model.row(0, len(self._problem.sites), [*columns, (group, -float(item.nodes))])
        return [(group, 1.0)]
