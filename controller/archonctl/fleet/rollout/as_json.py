"""What became of a fleet's hosts, as a JSON-ready value (``archonctl.fleet-hosts/1``)."""

from __future__ import annotations

import time
from collections import Counter

from archonctl.fleet.rollout.values import Fault, FleetResult, HostResult

SCHEMA = "archonctl.fleet-hosts/1"


def fleet_json(result: FleetResult) -> dict[str, object]:
    """One value, with every host in it, whatever became of the others."""
    return {
        "schema": SCHEMA,
        "action": result.action,
        "check": result.check,
        "exit_code": result.exit_code,
        "operator": result.operator or None,
        "began_at": result.began_at,
        "seconds": round(result.seconds, 3),
        "interrupted_by": result.signal or None,
        "stopped_at": result.stopped_at or None,
        "summary": dict(sorted(Counter(host.word for host in result.hosts).items())),
        "hosts": [_host(host) for host in result.hosts],
        "remarks": list(result.remarks),
    }


def _host(host: HostResult) -> dict[str, object]:
    return {
        "host": host.host,
        "word": host.word,
        "exit_code": host.exit_code,
        "fault": None if host.fault is None else _fault(host.fault),
        "busy_with": host.busy_with or None,
        "touched": host.touched,
        "changed": host.changed,
        "seconds": round(host.seconds, 3),
        "facts_age_s": None if host.facts_at is None else round(max(0.0, time.time() - host.facts_at), 3),
        "endpoints": [dict(each) for each in host.endpoints],
    }


def _fault(fault: Fault) -> dict[str, str | None]:
    return {
        "code": fault.code,
        "message": fault.message,
        "where": fault.where or None,
        "hint": fault.hint or None,
    }
