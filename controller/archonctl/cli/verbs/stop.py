"""``archonctl stop``."""

from __future__ import annotations

import os
from argparse import Namespace

from archonctl.cli.endpoint import endpoint_of
from archonctl.cli.output import Output


def run(args: Namespace, out: Output) -> int:
    """Stop what ``up`` left running; nothing running is no error."""
    from archonctl.service.lookup import stop
    from archonctl.service.state import EndpointState, state_dir

    loaded = endpoint_of(args, out)
    stopped = stop(EndpointState(state_dir(os.environ), loaded.name))
    what = f"unit {stopped.unit}" if stopped and stopped.unit else f"pid {stopped.pid}" if stopped else ""
    if out.json:
        engine = {"mode": stopped.mode, "pid": stopped.pid, "unit": stopped.unit or None} if stopped else None
        out.value({"schema": "archonctl.stop/1", "endpoint": loaded.name, "stopped": engine})
    else:
        out.answer(f"{loaded.name}: stopped {what}" if stopped else f"{loaded.name}: nothing of it was running")
    return 0
