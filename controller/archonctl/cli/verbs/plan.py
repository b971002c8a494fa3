"""``archonctl plan``."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Callable
from typing import TYPE_CHECKING

from archonctl.cli.endpoint import endpoint_of, loader_of
from archonctl.cli.output import Output
from archonctl.errors import UsageError
from archonctl.findings import refuses

if TYPE_CHECKING:
    from archonctl.deployment.load import LoadedEndpoint
    from archonctl.plan.values import Plan, PlanVerdict
    from archonctl.service.oracle import Consulted

EXIT = {"holds": 0, "short": 1, "unknown": 3}


def run(args: Namespace, out: Output) -> int:
    """Plan, solve or sweep, and present."""
    asked = {"--explain": args.explain, "--oracle": args.oracle, "--out": args.out is not None}
    if (args.sweep or args.solve is not None) and (both := [name for name, on in asked.items() if on]):
        message = f"{both[0]} is about one declaration, --solve and --sweep are about many"
        raise UsageError("command-line-invalid", message, hint="ask it of the answer, with --set KEY=VALUE")
    if args.relieve is not None:
        return _relieve(args, out)
    answer: Callable[[Namespace, Output], PlanVerdict] = (
        _sweep if args.sweep else _solve if args.solve is not None else _plan
    )
    return EXIT[answer(args, out)]


def _plan(args: Namespace, out: Output) -> PlanVerdict:
    from archonctl.plan.build import placed
    from archonctl.service.plan_here import plan_here

    loaded = endpoint_of(args, out)
    plan = plan_here(loaded)
    consulted = _consulted(loaded) if args.oracle else None
    if args.explain:
        plan = placed(plan, loaded)
    if out.json:
        from archonctl.plan.as_json import plan_json

        said = {"oracle": consulted.as_json()} if consulted else {}
        out.value(plan_json(plan, terms=args.explain) | said)
    else:
        from archonctl.cli.plan_text import plan_text

        out.answer(plan_text(plan, out))
        _add(args, plan, consulted, out)
    if args.out is not None:
        _keep(args.out, loaded, plan, out)
    # A plan that the engine itself contradicts is no ground to go on.
    contradicted = consulted is not None and refuses(consulted.findings)
    return "short" if contradicted and plan.verdict == "holds" else plan.verdict


def _keep(word: str, loaded: LoadedEndpoint, plan: Plan, out: Output) -> None:
    """Write the plan file, and say what it is for."""
    from pathlib import Path

    from archonctl.service.saved_plan import is_plan_name, save_plan

    if not is_plan_name(word):
        raise UsageError(
            "command-line-invalid", f"--out {word!r}: a plan file's name ends in .json", hint="--out NAME.json"
        )
    save_plan(loaded, plan, Path(word), os.environ)
    out.talk(f"archonctl: kept in {word}; archonctl apply {word} applies this, or refuses if something changed")


def _add(args: Namespace, plan: Plan, consulted: Consulted | None, out: Output) -> None:
    """What is shown below a plan on request."""
    if args.explain:
        from archonctl.cli.working_text import working_text

        out.answer(working_text(plan.forecast.terms, out))
    if consulted:
        from archonctl.cli.oracle_text import oracle_text

        out.answer(oracle_text(consulted, out))


def _consulted(loaded: LoadedEndpoint) -> Consulted:
    from archonctl.service.oracle import consult

    return consult(loaded, os.environ)


def _relieve(args: Namespace, out: Output) -> int:
    """0 where there is a way, 1 where the law knows none."""
    from archonctl.cli.relief_text import question_of, relief_json, relief_text
    from archonctl.host.load import load_host
    from archonctl.plan.load import load_model
    from archonctl.plan.relief import relieve
    from archonctl.plan.trial import Trial

    if args.sweep or args.solve is not None or args.explain or args.oracle:
        message = "--relieve is a question of its own"
        raise UsageError("command-line-invalid", message, hint="ask the others of the changed declaration, with --set")
    question, loaded = question_of(args.relieve), endpoint_of(args, out)
    with loaded.placing():
        found = relieve(Trial(loaded.name, loaded.endpoint, load_host(loaded), load_model(loaded.endpoint)), question)
    if out.json:
        out.value(relief_json(loaded.name, found))
    else:
        out.answer(relief_text(found, out, endpoint=loaded.name))
    return 0 if found.ways else 1


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
    if args.solve is None:
        return ()
    names = tuple(name.strip() for name in args.solve.split(",") if name.strip())
    if not names:
        raise UsageError("command-line-invalid", f"--solve {args.solve!r} names nothing", hint="--solve len")
    return names
