"""``archonctl guard``."""

from __future__ import annotations

import os
from argparse import Namespace

from archonctl.cli.endpoint import guarded_of
from archonctl.cli.output import Output, say


def run(args: Namespace, out: Output) -> int:
    """Serve until stopped."""
    import gc

    import uvloop

    from archonctl.guard.limits import Limits
    from archonctl.guard.serve import Running, serve
    from archonctl.guard.start import setup_of, started_json, watching, with_credentials
    from archonctl.guard.tiering import tiering_of
    from archonctl.service.notify import Notifier
    from archonctl.service.state import EndpointState, state_dir
    from archonctl.tiers.measured import kept_in

    limits = Limits(
        body_bytes=int(args.max_body * (1 << 20)),
        connections=int(args.connections),
        per_client=int(args.per_client),
        wait_s=args.wait,
        first_s=args.first,
        drain_s=args.drain,
    )
    found, installed = guarded_of(args, out)
    loaded = with_credentials(found, os.environ)
    setup = setup_of(loaded.endpoint, args.listen, args.admin, limits, args.keys, os.environ)
    notifier = Notifier(os.environ)

    def ready(running: Running) -> None:
        value = started_json(loaded.name, setup, running.port, running.admin_port)
        text = f"{value['listen']} guards {loaded.name} at {setup.base}"
        notifier.ready(text)
        if out.json:
            out.value(value)
        out.talk(f"archonctl: {text}")
        if value["admin"]:
            out.talk(f"archonctl: its own pages: {value['admin']}/health and /metrics")

    def told(text: str) -> None:
        say(f"guard: {text}")

    # The command's own thresholds suit a short run; this one stays, and never looks through its modules again.
    gc.set_threshold(2_000, 20, 50)
    gc.freeze()
    state = EndpointState(state_dir(os.environ), loaded.name).folder
    tiering = tiering_of(loaded.endpoint, kept_in(state, os.environ))
    uvloop.run(serve(setup, watching(loaded, installed, os.environ, told), told, ready, tiering))
    return 0
