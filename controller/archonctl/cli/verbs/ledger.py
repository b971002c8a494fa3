"""``archonctl ledger``: one boot log, or ``check`` for a file of many."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from archonctl.cli.output import Output, say
from archonctl.errors import UsageError

if TYPE_CHECKING:
    from archonctl.ledger.values import BootLedger, Change


def run(args: Namespace, out: Output) -> int:
    """Read and present: 0 with figures, 1 with a refusal in the log, 3 where nothing was found."""
    if args.file[:1] == ["check"]:
        return _check(args, out)
    _one_log(args)
    from archonctl.ledger.refusal import refusal

    ledger = _followed(args, out) if args.follow else _whole(args)
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


def _one_log(args: Namespace) -> None:
    named = [*args.file, *([args.unit] if args.unit else []), *([args.container] if args.container else [])]
    if len(named) != 1:
        hint = "a FILE, - for stdin, --unit NAME or --container NAME"
        raise UsageError("one-log", f"one log at a time, got {len(named)}", hint=hint)


def _engine(args: Namespace) -> str | None:
    return None if args.engine == "auto" else str(args.engine)


def _command(args: Namespace) -> list[str]:
    """What prints the log; empty for a file or stdin."""
    if args.unit is None and args.container is None:
        return []
    from archonctl.service.ledger_source import container_command, unit_command

    if args.unit is not None:
        return unit_command(args.unit, follow=args.follow)
    return container_command(args.container, follow=args.follow)


def _whole(args: Namespace) -> BootLedger:
    from archonctl.ledger.reader import read_ledger

    if command := _command(args):
        from archonctl.service.ledger_source import output_of

        with output_of(command) as stream:
            return read_ledger(stream, _engine(args))
    return read_ledger(sys.stdin.buffer if args.file[0] == "-" else args.file[0], _engine(args))


def _followed(args: Namespace, out: Output) -> BootLedger:
    """Say on stderr what each line tells, and give the ledger at the end; ^C ends it as well."""
    from contextlib import closing, suppress

    from archonctl.cli.ledger_text import change_text
    from archonctl.ledger.reader import LedgerReader
    from archonctl.service.ledger_source import Growing, Pipe, follow, output_of

    reader = LedgerReader(_engine(args))

    def tell(change: Change) -> None:
        if not out.quiet and (text := change_text(reader.detected(), change)):
            say(text)

    with suppress(KeyboardInterrupt):
        if command := _command(args):
            with output_of(command) as stream:
                follow(Pipe(stream), reader, tell, args.timeout)
        elif args.file[0] == "-":
            follow(Pipe(sys.stdin.buffer), reader, tell, args.timeout)
        else:
            with closing(Growing(Path(args.file[0]))) as growing:
                follow(growing, reader, tell, args.timeout)
    return reader.result()


def _check(args: Namespace, out: Output) -> int:
    """Read many cases; 0 if every line of the file was one."""
    files = args.file[1:]
    if len(files) != 1 or args.unit or args.container or args.follow:
        raise UsageError("one-log", f"'ledger check' takes one file of cases and nothing else, got {len(files)}")
    from archonctl.ledger.check import check_cases

    report = check_cases(files[0])
    if out.json:
        from archonctl.ledger.as_json import check_json

        out.value(check_json(report))
    else:
        from archonctl.cli.ledger_text import check_text

        out.answer(check_text(report, out))
    return 1 if report.problems else 0
