"""``archonctl probe``."""

from __future__ import annotations

from argparse import Namespace

from archonctl.cli.endpoint import endpoint_of
from archonctl.cli.output import Output

EXIT = {"holds": 0, "broken": 1, "no evidence": 3}


def run(args: Namespace, out: Output) -> int:
    """Read the boot log of what runs, ask the engine, present the verdict, and keep it."""
    import os

    from archonctl.cli.progress import Talker
    from archonctl.cli.verdict_text import cost_text, leg_text, verdict_text
    from archonctl.engines import adapter
    from archonctl.probe.budget import costs
    from archonctl.probe.run import probe_endpoint
    from archonctl.probe.values import Extras
    from archonctl.service.lookup import ledger_of_running
    from archonctl.service.probed import keep_probe, who_answers

    loaded = endpoint_of(args, out)
    endpoint = loaded.endpoint
    extras = Extras(args.recall, args.interference, args.when_idle)
    ledger, where = ledger_of_running(loaded, os.environ, args.log)
    with Talker(out) as talker:
        talker.say(f"boot ledger: {where}")
        talker.say(cost_text(costs(endpoint, args.leg, extras), args.leg))
        verdict = probe_endpoint(
            endpoint,
            adapter(endpoint.engine.kind).api,
            ledger,
            legs=args.leg,
            deadline=args.deadline,
            on_progress=talker.probe,
            on_leg=lambda leg: (talker.say if out.json else talker.answer)(leg_text(leg, out)),
            extras=extras,
            log_name=where,
            identity=who_answers(loaded, ledger, os.environ),
        )
        if trouble := keep_probe(loaded, verdict, ledger, os.environ, args.log):
            talker.say(trouble)
    if out.json:
        from archonctl.probe.verdict import verdict_json

        out.value(verdict_json(verdict, loaded.name))
    else:
        out.answer(verdict_text(loaded.name, endpoint.contract, verdict, out))
    return EXIT[verdict.word]
