"""A plan on the machine where the endpoint's own engine may be running already."""

from __future__ import annotations

import os
from dataclasses import replace

from archonctl.deployment.load import LoadedEndpoint
from archonctl.errors import ArchonError
from archonctl.host.load import load_host
from archonctl.plan.build import plan_endpoint
from archonctl.plan.values import Plan

_NOTE = (
    "its own engine runs and holds memory that is free for the next start: judged by the memory in all, so another "
    "program's share of it is not seen"
)


def plan_here(loaded: LoadedEndpoint) -> Plan:
    """``plan_endpoint``, where what the endpoint's own running engine holds does not count against its next start.

    Raises as ``plan_endpoint``.
    """
    host = load_host(loaded)
    plan = plan_endpoint(loaded, host)
    if plan.verdict == "holds" or host.source != "sysfs" or not _runs(loaded.name):
        return plan
    again = plan_endpoint(loaded, host.without_free())
    return replace(again, notes=(*again.notes, _NOTE))


def _runs(name: str) -> bool:
    # only a plan that does not hold asks: others start without it
    from archonctl.service.lookup import find_running
    from archonctl.service.state import EndpointState, state_dir

    try:
        return find_running(EndpointState(state_dir(os.environ), name)) is not None
    except ArchonError:
        return False
