"""Entry point: parse, dispatch, turn errors into one message and an exit code."""

from __future__ import annotations

import gc
import io
import os
import signal
import sys
from contextlib import suppress

EXIT_BROKEN_PIPE = 141


def run() -> None:
    """The console script."""
    gc.set_threshold(
        100_000, 10, 10
    )  # loading makes many objects and no garbage: a tenth of a short run went to looking
    _open_closed_streams()
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        # A file name or a model's name may hold what this terminal cannot: it is shown escaped, not refused.
        sys.stdout.reconfigure(errors="backslashreplace")
    sys.exit(main(sys.argv[1:]))


def main(argv: list[str]) -> int:
    """Run one command line and return its exit code (the table is in archonctl(1)). Never raises."""
    try:
        return _run(argv)
    except KeyboardInterrupt as stop:
        # Also while the first modules load, which is most of a short run.
        with suppress(OSError):
            print("archonctl: interrupted", file=sys.stderr, flush=True)
        return 128 + int(getattr(stop, "number", signal.SIGINT))


def _run(argv: list[str]) -> int:
    from archonctl.cli.output import AnswerLostError, written

    try:
        code = _answer(argv)
        with written():
            sys.stdout.flush()
    except BrokenPipeError:
        # The reader went away: not an error of ours, but nothing more can be said either.
        _drop_the_rest()
        return EXIT_BROKEN_PIPE
    except AnswerLostError as err:
        from archonctl.cli.output import Output

        _drop_the_rest()
        Output.plain(json=False).error(err)
        return err.exit_code
    return code


def _open_closed_streams() -> None:
    """Give a stream that the caller closed (``>&-``) to /dev/null, before a file of ours gets its number."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(number)
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115 - for the life of the process
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115


def _drop_the_rest() -> None:
    """What is still buffered has no reader: without this the interpreter tries again as it ends, and complains."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _answer(argv: list[str]) -> int:
    from archonctl.cli.output import AnswerLostError, Output
    from archonctl.cli.parser import build_parser
    from archonctl.errors import ArchonError

    out = Output.plain(json="--json" in argv)
    try:
        args = build_parser(argv[0] if argv else "").parse_args(argv)
        out = Output.of(args)
        code: int = args.handler(args, out)
    except AnswerLostError:
        raise
    except ArchonError as err:
        out.error(err)
        return err.exit_code
    except SystemExit as done:
        # argparse ends the process itself after --help and --version: their text has to arrive too.
        return done.code if isinstance(done.code, int) else 0
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
