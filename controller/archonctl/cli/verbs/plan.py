"""``archonctl plan``."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from typing import TYPE_CHECKING

from archonctl.cli.endpoint import endpoint_of, loader_of
from archonctl.cli.output import Output

if TYPE_CHECKING:
    from archonctl.plan.values import PlanVerdict

EXIT = {"holds": 0, "short": 1, "unknown": 3}


def run(args: Namespace, out: Output) -> int:
    """Plan, solve or sweep, and present."""
    answer: Callable[[Namespace, Output], PlanVerdict] = _sweep if args.sweep else _solve if args.solve else _plan
    return EXIT[answer(args, out)]


def _plan(args: Namespace, out: Output) -> PlanVerdict:
    from archonctl.plan.build import placed, plan_endpoint

    loaded = endpoint_of(args, out)
    plan = plan_endpoint(loaded)
    if args.explain:
        plan = placed(plan, loaded)
    if out.json:
        from archonctl.plan.as_json import plan_json

        out.value(plan_json(plan, terms=args.explain))
    else:
        from archonctl.cli.plan_text import plan_text

        out.answer(plan_text(plan, out))
        if args.explain:
            from archonctl.cli.working_text import working_text

            out.answer(working_text(plan.forecast.terms, out))
    return plan.verdict


def _solve(args: Namespace, out: Output) -> PlanVerdict:
    from archonctl.plan.solve import solve_endpoint

    solution = solve_endpoint(endpoint_of(args, out), _names(args))
    if out.json:
        from archonctl.plan.answers_json import solution_json

        out.value(solution_json(solution))
    else:
        from archonctl.cli.answers_text import solution_text

        out.answer(solution_text(solution, out))
    return solution.plan.verdict


def _sweep(args: Namespace, out: Output) -> PlanVerdict:
    from archonctl.plan.sweep import best_verdict, parse_axis, sweep

    axes = [parse_axis(text) for text in args.sweep]
    load = loader_of(args, out)
    points = sweep(axes, load, _names(args))
    if out.json:
        from archonctl.plan.answers_json import sweep_json

        out.value(sweep_json(load({}).name, axes, points))
    else:
        from archonctl.cli.answers_text import sweep_text

        out.answer(sweep_text(axes, points, out))
    return best_verdict(points)


def _names(args: Namespace) -> tuple[str, ...]:
    return tuple(name.strip() for name in (args.solve or "").split(",") if name.strip())
