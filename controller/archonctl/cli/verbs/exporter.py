"""``archonctl exporter``."""

from __future__ import annotations

import threading
from argparse import Namespace

from archonctl.cli.endpoint import all_installed
from archonctl.cli.output import Output, say
from archonctl.errors import UsageError


def run(args: Namespace, out: Output) -> int:
    """Look and serve until stopped, or look once and print."""
    from archonctl.observe.board import Board
    from archonctl.observe.exporter import Looker
    from archonctl.observe.guard_look import guards
    from archonctl.observe.serve import serving, shipped_text, text
    from archonctl.service.preflight import split_listen
    from archonctl.service.unit import show

    if args.shown:
        out.answer(shipped_text(args.shown).rstrip("\n"))
        return 0
    if not args.every > 0:
        raise UsageError("command-line-invalid", f"--every {args.every:g}: seconds, more than 0")
    board = Board(stale_s=max(600.0, 4 * args.every))
    all_installed(args.endpoints, out, user=args.user)  # a name that is not installed is said at once
    looker = Looker(
        board,
        lambda: all_installed(args.endpoints, out, user=args.user),
        lambda each: show(each.unit, user=args.user, timeout_s=10.0),
        lambda words: say(f"archonctl: {words}"),
        lambda: guards(user=args.user),
    )
    try:
        if args.once:
            looker.once(wait_s=30.0)
            out.answer(text(board).rstrip("\n"))
            return 0
        host, port = split_listen(args.listen)
        with serving(board, host, port) as bound:
            out.talk(f"archonctl: metrics at http://{f'[{host}]' if ':' in host else host}:{bound}/metrics")
            looker.run(threading.Event(), args.every)
    finally:
        looker.close()
    return 0
