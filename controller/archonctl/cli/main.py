"""Entry point: parse, dispatch, turn errors into one message and an exit code."""

from __future__ import annotations

import io
import os
import signal
import sys

from archonctl.errors import ArchonError

EXIT_BROKEN_PIPE = 141


def run() -> None:
    """The console script."""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        # A file name or a model's name may hold what this terminal cannot: it is shown escaped, not refused.
        sys.stdout.reconfigure(errors="backslashreplace")
    sys.exit(main(sys.argv[1:]))


def main(argv: list[str]) -> int:
    """Run one command line and return its exit code (the table is in archonctl(1)). Never raises."""
    try:
        code = _answer(argv)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader went away: not an error of ours, but nothing more can be said either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_BROKEN_PIPE
    return code


def _answer(argv: list[str]) -> int:
    from archonctl.cli.output import Output
    from archonctl.cli.parser import build_parser

    out = Output.plain()
    try:
        args = build_parser().parse_args(argv)
        out = Output.of(args)
        code: int = args.handler(args, out)
    except ArchonError as err:
        out.error(err)
        return err.exit_code
    except KeyboardInterrupt as stop:
        print("archonctl: interrupted", file=sys.stderr)
        return 128 + int(getattr(stop, "number", signal.SIGINT))
    except BrokenPipeError:
        raise
    except Exception as err:
        if os.environ.get("ARCHON_DEBUG"):
            raise
        fault = ArchonError(
            "internal-fault",
            f"{type(err).__name__}: {err}",
            hint="a defect of archonctl; ARCHON_DEBUG=1 shows the traceback for a report",
        )
        out.error(fault)
        return fault.exit_code
    return code
