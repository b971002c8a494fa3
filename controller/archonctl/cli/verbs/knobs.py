"""``archonctl knobs``."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable

from archonctl.cli.output import Output
from archonctl.engines.names import engine_name
from archonctl.errors import UsageError


def run(args: Namespace, out: Output) -> int:
    """Do one action: 0, or 4 for a command line that is refused."""
    actions: dict[str, Callable[[Namespace, Output], int]] = {
        "check": _check,
        "show": _show,
        "why": _why,
        "diff": _diff,
        "harvest": _harvest,
    }
    args.engine = engine_name(args.engine or "")
    return actions[args.action](args, out)


def _check(args: Namespace, out: Output) -> int:
    from archonctl.cli import knobs_text
    from archonctl.engines.knobs.as_json import check_json
    from archonctl.foreign.program import check_line

    line = check_line(args.engine, args.engine_version, args.argv)
    if out.json:
        out.value(check_json(args.engine, args.engine_version, args.argv, line.program, line.findings))
    else:
        out.answer(knobs_text.check_text(args.engine, args.engine_version, args.argv, line.program, line.findings, out))
    return 4 if any(finding.severity == "error" for finding in line.findings) else 0


def _show(args: Namespace, out: Output) -> int:
    from archonctl.cli import knobs_text
    from archonctl.engines.knobs import edition, load_table, table_names
    from archonctl.engines.knobs.as_json import engines_json, show_json

    if not args.engine:
        tables = [load_table(engine) for engine in table_names()]
        if out.json:
            out.value(engines_json(tables))
        else:
            out.answer(knobs_text.engines_text(tables, out))
        return 0
    table = load_table(args.engine)
    one = edition(table, args.version or table.newest)
    knobs = list(one.knobs)
    if args.flag:
        found = one.find(args.flag)
        knob = found[0] if found else one.find_env(args.flag)
        if knob is None:
            near = one.suggest(args.flag)
            raise UsageError(
                "knob-unknown",
                f"{args.engine} {one.version} has no {args.flag[:60]!r}",
                hint=f"did you mean {near}?" if near else f"archonctl knobs why {args.flag[:60]}",
            )
        knobs = [knob]
    if out.json:
        out.value(show_json(one, knobs))
    else:
        out.answer(knobs_text.show_text(one, knobs, out, full=bool(args.flag)))
    return 0


def _why(args: Namespace, out: Output) -> int:
    from archonctl.cli import knobs_text
    from archonctl.engines.knobs import load_table, table_names
    from archonctl.engines.knobs.as_json import why_json
    from archonctl.engines.knobs.history import life

    engines = [args.engine] if args.engine else table_names()
    lives = [one for engine in engines if (one := life(load_table(engine), args.flag)).known]
    if not lives:
        where = args.engine or "any engine"
        raise UsageError(
            "knob-unknown",
            f"no version of {where} that was read knows {args.flag[:60]!r}",
            hint=knobs_text.nearest(engines, args.flag),
        )
    if out.json:
        out.value(why_json(args.flag, lives))
    else:
        out.answer("\n\n".join(knobs_text.life_text(load_table(one.engine), one, out) for one in lives))
    return 0


def _diff(args: Namespace, out: Output) -> int:
    from archonctl.cli import knobs_text
    from archonctl.engines.knobs import load_table
    from archonctl.engines.knobs.as_json import diff_json
    from archonctl.engines.knobs.history import difference

    table = load_table(args.engine)
    found = difference(table, args.before, args.after)
    if out.json:
        out.value(diff_json(args.engine, args.before, args.after, found))
    else:
        out.answer(knobs_text.diff_text(f"{args.engine} {args.before} to {args.after}", found, out))
    return 0


def _harvest(args: Namespace, out: Output) -> int:
    from archonctl.cli import knobs_text
    from archonctl.engines.knobs import load_table
    from archonctl.engines.knobs.as_json import diff_json
    from archonctl.engines.knobs.harvest import compare, read_help
    from archonctl.service.engine_help import of_binary, of_file, write_snapshot

    if args.binary:
        text, version = of_binary(args.binary)
    else:
        text, version = of_file(args.image_help), ""
    snapshot = read_help(text, args.engine, args.engine_version or version, args.binary or args.image_help)
    table = load_table(snapshot.engine)
    found = compare(table, snapshot)
    if args.out:
        write_snapshot(snapshot, args.out)
        out.talk(f"{len(snapshot.knobs)} flags written to {args.out}; next: scripts/build-knob-table --onto")
    shown = snapshot.version or table.newest
    if out.json:
        out.value(diff_json(snapshot.engine, f"table of {shown}", args.binary or args.image_help, found))
    else:
        out.answer(knobs_text.harvest_text(snapshot, shown, found, out))
    return 0
