"""``archonctl ledger``: one boot log, or ``check`` for a file of many."""

from __future__ import annotations

import sys
from argparse import Namespace

from archonctl.cli.output import Output
from archonctl.errors import UsageError


def run(args: Namespace, out: Output) -> int:
    """Read and present: 0 with figures, 1 with a refusal in the log, 3 where nothing was found."""
    if args.file[0] == "check":
        return _check(args.file[1:], out)
    if len(args.file) != 1:
        raise UsageError("one-log", f"one log at a time, got {len(args.file)}", hint="run it once for each file")
    from archonctl.ledger.reader import read_ledger
    from archonctl.ledger.refusal import refusal

    engine = None if args.engine == "auto" else args.engine
    ledger = read_ledger(sys.stdin.buffer if args.file[0] == "-" else args.file[0], engine)
    cause = refusal(ledger)
    if out.json:
        from archonctl.ledger.as_json import ledger_json

        out.value(ledger_json(ledger))
    else:
        from archonctl.cli.ledger_text import ledger_text

        out.answer(ledger_text(ledger, cause, out))
    if cause and not ledger.ready_line:
        return 1
    return 0 if ledger.figures else 3


def _check(files: list[str], out: Output) -> int:
    """Read many cases; 0 if every line of the file was one."""
    if len(files) != 1:
        raise UsageError("one-log", f"'ledger check' takes one file of cases, got {len(files)}")
    from archonctl.ledger.check import check_cases

    report = check_cases(files[0])
    if out.json:
        from archonctl.ledger.as_json import check_json

        out.value(check_json(report))
    else:
        from archonctl.cli.ledger_text import check_text

        out.answer(check_text(report, out))
    return 1 if report.problems else 0
