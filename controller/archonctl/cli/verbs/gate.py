"""``archonctl gate``."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from archonctl.cli.output import Output
from archonctl.errors import UsageError
from archonctl.gate.values import GateReport


def run(args: Namespace, out: Output) -> int:
    """Judge and present: 0 clean, 4 refused."""
    import os

    from archonctl.cli.progress import Talker
    from archonctl.gate.paths import Options, check_paths

    if args.write and not args.fix:
        raise UsageError("gate-write-alone", "--write does nothing without --fix", hint="add --fix")
    root = Path(args.root)
    paths = [Path(path) for path in args.path]
    if args.installed and not paths:
        paths = [_installed(args.installed)]
    if not paths:
        raise UsageError("gate-nothing-named", "no file or folder is named", hint="archonctl gate env/*.toml")
    options = Options(
        engine=args.engine,
        engine_version=args.engine_version,
        strict=args.strict,
        verify_files=args.verify_files,
        verify_units=not args.no_verify_units,
        installed=root if args.installed else None,
        installed_name=args.installed or "",
        environ={} if args.no_environment else os.environ,
        root=None if args.no_environment else root,
    )
    with Talker(out) as talker:
        report = check_paths(paths, options, talker.read)
        if args.fix and _fix(report, args.write, out):
            report = check_paths(paths, options, talker.read)
    _present(report, "json" if out.json else args.format, out)
    return 4 if report.refused else 0


def _installed(name: str) -> Path:
    """The declaration of an endpoint that is compared without being named as a path."""
    import os

    from archonctl.deployment.find import find_endpoint

    return find_endpoint(name, os.environ, Path.cwd()).path


def _fix(report: GateReport, write: bool, out: Output) -> bool:
    """Show the safe edits on stderr, and make them if asked; True if anything was written."""
    from archonctl.cli.output import say
    from archonctl.gate import fix

    changed = fix.fixes(report.findings)
    for one in changed:
        say(one.diff.rstrip("\n"))
        if write:
            fix.write(one)
        if one.left:
            out.talk(f"archonctl: {one.path}: {one.left} more edits overlap; run it again")
    what = "changed" if write else "would be changed; --write makes the edits"
    out.talk(f"archonctl: {len(changed)} file{'' if len(changed) == 1 else 's'} {what}")
    return write and bool(changed)


def _present(report: GateReport, form: str, out: Output) -> None:
    from archonctl.gate.formats import github_text, junit_text, report_value, sarif_value

    if form == "json":
        out.value(report_value(report))
    elif form == "sarif":
        out.value(sarif_value(report))
    elif form == "junit":
        out.answer(junit_text(report))
    elif form == "github":
        if text := github_text(report):
            out.answer(text)
    else:
        from archonctl.cli.gate_text import gate_text

        out.answer(gate_text(report, out))
