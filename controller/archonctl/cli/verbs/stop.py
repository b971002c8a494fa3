"""``archonctl stop``."""

from __future__ import annotations

import os
from argparse import Namespace

from archonctl.cli.endpoint import endpoint_of, installed_of, place_of
from archonctl.cli.output import Output
from archonctl.errors import ArchonError


def run(args: Namespace, out: Output) -> int:
    """Stop what ``up`` left running, or an installed unit; nothing running is no error."""
    from archonctl.service.lookup import stop
    from archonctl.service.state import EndpointState, state_dir

    where = place_of(user=args.user)
    name = _name(args, out)
    stopped = stop(EndpointState(state_dir(os.environ), name), where=where)
    what = f"unit {stopped.unit}" if stopped and stopped.unit else f"pid {stopped.pid}" if stopped else ""
    if out.json:
        engine = {"mode": stopped.mode, "pid": stopped.pid, "unit": stopped.unit or None} if stopped else None
        out.value({"schema": "archonctl.stop/1", "endpoint": name, "stopped": engine})
    else:
        out.answer(f"{name}: stopped {what}" if stopped else f"{name}: nothing of it was running")
    return 0


def _name(args: Namespace, out: Output) -> str:
    """Of a declaration, or of an installed endpoint whose declaration is gone or cannot be read any more.

    Raises as ``endpoint_of``.
    """
    try:
        return endpoint_of(args, out).name
    except ArchonError:
        try:
            return installed_of(args.endpoint, out, user=args.user).name
        except ArchonError:
            pass
        raise
