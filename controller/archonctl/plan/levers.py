"""Ways out of a short contract that the engine has no law of its own for, and the order in which all are shown."""

from __future__ import annotations

from collections.abc import Iterator

from archonctl.engines.base import Lever
from archonctl.engines.change import Variable
from archonctl.plan.solve import Answer, solve
from archonctl.plan.trial import Trial
from archonctl.plan.values import Plan


def ranked(trial: Trial, plan: Plan) -> tuple[Lever, ...]:
    """The engine's own levers and those found by solving: what costs memory, then precision, then the promise.

    Every one was judged by the forward law; within a kind the smallest change comes first.
    """
    found = (*(lever for lever in plan.forecast.levers if trial.holds(lever.set)), *_solved(trial, plan))
    return tuple(sorted(found, key=lambda lever: (_gives_up(lever), bool(lever.quality))))


def _gives_up(lever: Lever) -> bool:
    """True if less is promised afterwards."""
    return "contract.seqs" in lever.set or "contract.len" in lever.set


def _solved(trial: Trial, plan: Plan) -> Iterator[Lever]:
    for name, variable in trial.variables().items():
        if not variable.lever:
            continue
        solution = solve(trial, (name,))
        if solution.answers and solution.answers[0].value != solution.answers[0].declared:
            yield _lever(solution.answers[0], variable, plan, solution.plan)


def _lever(answer: Answer, variable: Variable, before: Plan, after: Plan) -> Lever:
    was, now = before.forecast.kv_tokens, after.forecast.kv_tokens
    wins = int(now.best - was.best) if was and now and now.best > was.best else None
    said = answer.declared if answer.declared is not None else "the default"
    unit = f" {variable.unit}" if variable.unit else ""
    if variable.key == "contract.seqs":
        text = f"promise {answer.value:,} x {after.contract.len:,} in place of {answer.declared:,}"
    elif variable.key == "contract.len":
        text = f"promise {after.contract.seqs:,} x {answer.value:,} in place of {answer.declared:,}"
    else:
        text = f"{variable.key.rpartition('.')[2]} {answer.value}{unit} in place of {said}"
    change = dict.fromkeys((variable.key, *variable.mirrors), answer.value)
    return Lever(text, change, wins, variable.costs, quality=variable.quality)
