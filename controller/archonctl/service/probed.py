"""What ``archonctl probe`` does beside asking: look at who answers, and keep the verdict."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from archonctl import __version__
from archonctl.deployment.load import LoadedEndpoint
from archonctl.errors import ArchonError
from archonctl.ledger.values import BootLedger
from archonctl.probe.identity import judge_identity
from archonctl.probe.stored import evidence
from archonctl.probe.values import Leg, Verdict
from archonctl.probe.verdict import verdict_json
from archonctl.release.load import load_release
from archonctl.release.render import ARGV_FILE
from archonctl.service.identity import look
from archonctl.service.locate import locate_in_file, locate_in_journal
from archonctl.service.lookup import find_running
from archonctl.service.state import EndpointState, Running, state_dir
from archonctl.service.unit import show
from archonctl.service.verdict_store import NO_RELEASE, keep_or_say


def who_answers(loaded: LoadedEndpoint, ledger: BootLedger | None, environ: Mapping[str, str]) -> Leg | None:
    """The identity leg for what runs; None where nothing that archonctl started runs, so that it has no identity."""
    running = _running(loaded, environ)
    if running is None or not running.pid or running.port != _port(loaded):
        return None
    try:
        group = show(running.unit).control_group if running.unit else ""
        argv = _argv(running)
    except ArchonError:
        return None
    return judge_identity(look(loaded.endpoint, argv, running.port, running.pid, control_group=group), ledger)


def keep_probe(
    loaded: LoadedEndpoint, verdict: Verdict, ledger: BootLedger | None, environ: Mapping[str, str], log: str | None
) -> str:
    """Store a probe's verdict beside those of ``up`` and ``verify``; what went wrong with that, in words."""
    running = _running(loaded, environ)
    probe = verdict_json(verdict, loaded.name)
    if log or (running and running.log):
        probe = locate_in_file(probe, Path(log or (running.log if running else "")))
    elif running and running.unit:
        probe = locate_in_journal(probe, running.unit, running.invocation)
    release, at = Path(running.release).name if running and running.release else NO_RELEASE, time.time()
    value = evidence(
        loaded.endpoint,
        loaded.name,
        probe,
        ledger,
        verdict=verdict.word,
        reasons=list(verdict.reasons),
        release=release,
        by="probe",
        at=at,
        depth=str(verdict.facts.get("depth") or "") or None,
        archonctl=__version__,
    )
    return keep_or_say(EndpointState(state_dir(environ), loaded.name).folder, release, "probe", value, at)


def _running(loaded: LoadedEndpoint, environ: Mapping[str, str]) -> Running | None:
    try:
        return find_running(EndpointState(state_dir(environ), loaded.name))
    except ArchonError:
        return None


def _port(loaded: LoadedEndpoint) -> int:
    return int(loaded.endpoint.service.listen.rpartition(":")[2])


def _argv(running: Running) -> tuple[str, ...]:
    """The rendered command line; empty where its release is gone. Raises HostRefusal ``release-damaged``."""
    import json

    if not running.release:
        return ()
    return tuple(map(str, json.loads(load_release(Path(running.release)).files[ARGV_FILE])))
