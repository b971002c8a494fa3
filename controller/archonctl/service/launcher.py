"""Starting a prepared release as a unit or as a child, with the log that goes with it."""

from __future__ import annotations

import os
import pwd
import time
from collections.abc import Mapping
from pathlib import Path

from archonctl.deployment.load import LoadedEndpoint
from archonctl.errors import ContractBroken, HostRefusal
from archonctl.service import unit as units
from archonctl.service.journal import JournalTail
from archonctl.service.logtail import FileTail, LogSource
from archonctl.service.preflight import DEFAULT_PATH, resolve_binary
from archonctl.service.process import EngineProcess, StartSpec
from archonctl.service.state import EndpointState, Mode, Running, argv_digest
from archonctl.service.unit import UnitProcess
from archonctl.service.values import Prepared, RunAs

Engine = EngineProcess | UnitProcess


def mode_of(run_as: RunAs) -> Mode:
    """Where to run it. Raises HostRefusal ``no-systemd`` if a unit was asked for and cannot be."""
    if run_as == "auto":
        return "unit" if units.available() else "child"
    if run_as == "unit" and not units.available():
        raise HostRefusal("no-systemd", "a unit needs root and a running systemd", hint="use --foreground")
    return run_as


def start_engine(
    loaded: LoadedEndpoint, prepared: Prepared, mode: Mode, log: Path, grace_s: float, environ: Mapping[str, str]
) -> Engine:
    """Start it and return at once. Raises HostRefusal, see ``EngineProcess.launch`` and ``UnitProcess.launch``."""
    if mode == "unit":
        return UnitProcess.launch(prepared.unit, prepared.unit_text)
    user = loaded.endpoint.service.user if os.geteuid() == 0 else ""
    spec = StartSpec(
        argv=prepared.argv,
        executable=resolve_binary(prepared.argv[0]),
        env=clean_environment(environ, user) | dict(prepared.env),
        log=log,
        grace_s=grace_s,
        detach=mode == "detached",
        user=user,
    )
    return EngineProcess.launch(spec)


def clean_environment(environ: Mapping[str, str], user: str = "") -> dict[str, str]:
    """The little that an engine gets besides what is declared: where programs and its home are, and UTF-8."""
    home = environ.get("HOME", "")
    if user:
        try:
            home = pwd.getpwnam(user).pw_dir
        except KeyError:
            home = ""
    return {"PATH": DEFAULT_PATH, "LANG": "C.UTF-8", "HOME": home if home.startswith("/") else "/"}


def log_of(engine: Engine, log: Path) -> LogSource:
    """The log of a started engine; ``log`` is its file, or where the journal's beginning is kept."""
    if isinstance(engine, UnitProcess):
        return JournalTail(engine.unit, engine.invocation, log)
    return FileTail(log)


def close_log(log: LogSource | None) -> None:
    """Stop reading."""
    if isinstance(log, JournalTail):
        log.close()


def record(
    state: EndpointState,
    engine: Engine,
    prepared: Prepared,
    loaded: LoadedEndpoint,
    mode: Mode,
    address: tuple[str, int],
) -> Running:
    """Write down what runs. Raises ContractBroken if it ended in this moment, HostRefusal ``state-unwritable``."""
    who = engine.start
    if who is None:
        raise ContractBroken("engine-exited-at-boot", "the engine ended right after it was ready", where=str(state.log))
    found = Running(
        endpoint=loaded.name,
        mode=mode,
        pid=who.pid,
        start_ticks=who.start_ticks,
        boot_id=who.boot_id,
        argv_sha256=argv_digest(prepared.argv),
        host=address[0],
        port=address[1],
        log=str(state.log),
        release=prepared.folder,
        declaration=str(loaded.path),
        started_at=time.time(),
        unit=engine.unit if isinstance(engine, UnitProcess) else "",
        invocation=engine.invocation if isinstance(engine, UnitProcess) else "",
    )
    state.write(found)
    return found
