"""``archonctl up``."""

from __future__ import annotations

import os
from argparse import Namespace

from archonctl.cli.endpoint import endpoint_of
from archonctl.cli.output import Output
from archonctl.cli.verbs.probe import EXIT


def run(args: Namespace, out: Output) -> int:
    """Start, verify, present; the verdict is the exit code, and an engine that died later keeps no promise."""
    from archonctl.cli.progress import Talker
    from archonctl.cli.up_text import up_json, up_text
    from archonctl.service.rooms import real
    from archonctl.service.up import up
    from archonctl.service.values import Options, UpResult

    loaded = endpoint_of(args, out)
    options = Options(once=args.once, force=args.force, keep=args.keep, run_as=args.run_as)

    def stays(result: UpResult) -> bool:
        return not args.once and (args.keep or result.verdict.word == "holds")

    with Talker(out) as talker:

        def on_verdict(result: UpResult) -> None:
            # Said while the engine still runs: a supervised one may run for months after this line.
            if not out.json:
                talker.answer(up_text(result, loaded.endpoint.contract, out))
            elif stays(result):
                out.value(up_json(result))

        result = up(
            loaded,
            options,
            rooms=real(args.leg, args.deadline, on_progress=talker.probe),
            environ=os.environ,
            on_event=talker.event,
            on_verdict=on_verdict,
        )
    if out.json and not stays(result):
        out.value(up_json(result))
    if result.ended == "running":
        where = result.running.unit or f"pid {result.running.pid}"
        talker.say(f"it keeps running ({where}); archonctl stop {result.endpoint} ends it")
    if result.ended == "died":
        talker.say(f"the engine ended: {result.exit.words if result.exit else 'unknown how'}")
        if result.exit is None or result.exit.code != 0:  # 0 is how it ends when it is stopped from elsewhere
            return EXIT["broken"]
    return EXIT[result.verdict.word]
