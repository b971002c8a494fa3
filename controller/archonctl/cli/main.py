"""Entry point: parse, dispatch, turn errors into one message and an exit code."""

from __future__ import annotations

import os
import signal
import sys

from archonctl.errors import ArchonError

EXIT_BROKEN_PIPE = 141
EXIT_INTERNAL = 70


def run() -> None:
    """The console script."""
    sys.exit(main(sys.argv[1:]))


def main(argv: list[str]) -> int:
    """Run one command line and return its exit code (the table is in archonctl(1)). Never raises."""
    from archonctl.cli.output import Output
    from archonctl.cli.parser import build_parser

    out = Output.plain()
    try:
        args = build_parser().parse_args(argv)
        out = Output.of(args)
        code: int = args.handler(args, out)
        sys.stdout.flush()
    except ArchonError as err:
        out.error(err)
        return err.exit_code
    except KeyboardInterrupt as stop:
        print("archonctl: interrupted", file=sys.stderr)
        return 128 + int(getattr(stop, "number", signal.SIGINT))
    except BrokenPipeError:
        # The reader went away: not an error of ours, but nothing more can be said either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_BROKEN_PIPE
    except Exception as err:
        if os.environ.get("ARCHON_DEBUG"):
            raise
        print(
            f"archonctl: internal-fault: {type(err).__name__}: {err} (a defect of archonctl; "
            "ARCHON_DEBUG=1 shows the traceback for a report)",
            file=sys.stderr,
        )
        return EXIT_INTERNAL
    return code
