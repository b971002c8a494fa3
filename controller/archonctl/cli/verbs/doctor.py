"""``archonctl doctor``."""

from __future__ import annotations

import os
from argparse import Namespace
from pathlib import Path

from archonctl.cli.output import Output
from archonctl.errors import UsageError


def run(args: Namespace, out: Output) -> int:
    """Look, present; the report has the exit code."""
    from archonctl.doctor.table import chosen

    checks = chosen(args.check)
    if args.list:
        return _list(args, out)
    from archonctl.doctor.run import Asked, run_checks

    root = Path(args.root)
    if not root.is_dir():
        raise UsageError("host-root-missing", f"{args.root[:200]!a} is no folder", where="--root")
    declarations, named = _declarations(args, out)
    report = run_checks(
        Asked(
            checks=checks,
            declarations=declarations,
            named=named,
            root=root.absolute(),
            environ=dict(os.environ),
            cwd=Path.cwd(),
            strict=args.strict,
            verify_files=args.verify_files,
        )
    )
    if out.json:
        from archonctl.doctor.as_json import report_json

        out.value(report_json(report))
    else:
        from archonctl.cli.doctor_text import report_text

        out.answer(report_text(report, out, is_root=os.geteuid() == 0))
    return report.exit_code


def _list(args: Namespace, out: Output) -> int:
    from archonctl.doctor.table import chosen

    if out.json:
        from archonctl.doctor.as_json import table_json

        out.value(table_json(chosen(args.check)))
    else:
        from archonctl.cli.doctor_text import table_text

        out.answer(table_text(chosen(args.check), out))
    return 0


def _declarations(args: Namespace, out: Output) -> tuple[tuple[Path, ...], bool]:
    """The named declaration, else all of the first folder that has any; True if one was named."""
    from archonctl.deployment.find import LOCAL_DIR, SYSTEM_DIR, VARIABLE, declarations, find_endpoint

    cwd = Path.cwd()
    if args.endpoint is not None or os.environ.get(VARIABLE):
        found = find_endpoint(args.endpoint, os.environ, cwd)
        if found.said:
            out.talk(f"archonctl: {found.said}")
        return (found.path,), True
    for folder in (LOCAL_DIR, SYSTEM_DIR):
        if paths := declarations(folder):
            return paths, False
    out.talk(f"archonctl: no declaration in ./{LOCAL_DIR} nor in {SYSTEM_DIR}: the machine alone is looked at")
    return (), False
