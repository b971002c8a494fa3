"""Finding, and stopping, what an earlier ``up`` started."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from archonctl.deployment.load import LoadedEndpoint
from archonctl.errors import HostRefusal, NoEvidence
from archonctl.ledger.values import BootLedger
from archonctl.service import procfs
from archonctl.service.follow import LAG_S
from archonctl.service.place import SYSTEM, Place
from archonctl.service.state import EndpointState, Running, argv_digest, state_dir, stop_process


def find_running(state: EndpointState) -> Running | None:
    """What runs of an endpoint now: what ``up`` started, else its installed unit; None if nothing does.

    Raises HostRefusal ``state-unreadable``, ``systemctl-failed``.
    """
    found = find_recorded(state) or find_installed(state.endpoint)
    if found is None and os.geteuid() != 0 and os.environ.get("XDG_RUNTIME_DIR"):
        found = find_installed(state.endpoint, Place.of_user(os.environ))
    return found


def find_installed(name: str, where: Place = SYSTEM) -> Running | None:
    """The engine of ``archon@NAME.service``; None if that is down. Raises HostRefusal ``systemctl-failed``.

    ``host``, ``port`` and the release are empty where its release cannot be read.
    """
    from archonctl.service.installed import Installed, argv_of
    from archonctl.service.preflight import split_listen
    from archonctl.service.unit import UNIT_DIR, show

    installed = Installed(name, Path("/"), where)
    if not UNIT_DIR.is_dir() or (where.user and not installed.exists):
        return None
    if (now := show(installed.unit, user=where.user)).ended:
        return None
    who = (procfs.identity(now.main_pid) if now.main_pid else None) or procfs.Identity(0, 0, "")
    host, port, digest, folder, declaration = "", 0, "", "", ""
    with contextlib.suppress(HostRefusal):
        release = installed.stored(installed.current())
        host, port = split_listen(release.loaded.endpoint.service.listen)
        digest, folder, declaration = argv_digest(argv_of(release)), str(release.folder), str(release.loaded.path)
    age_s = max(0.0, time.monotonic() - now.active_us / 1e6) if now.active_us else 0.0
    return Running(
        endpoint=name,
        mode="unit",
        pid=who.pid,
        start_ticks=who.start_ticks,
        boot_id=who.boot_id,
        argv_sha256=digest,
        host=host,
        port=port,
        log="",
        release=folder,
        declaration=declaration,
        started_at=time.time() - age_s,
        unit=installed.unit,
        invocation=now.invocation,
    )


def find_recorded(state: EndpointState) -> Running | None:
    """What ``up`` started and still runs, by the kernel's word, or systemd's for a unit.

    A unit that systemd has started anew since is the same endpoint with another process, whose boot log is in
    the journal only: ``log`` is empty then. Raises HostRefusal ``state-unreadable``, ``systemctl-failed``.
    """
    found = state.recorded()
    if found is None or found.mode != "unit":
        return state.running()
    from archonctl.service.unit import UNIT_DIR, show

    if not UNIT_DIR.is_dir():
        return None
    now = show(found.unit)
    who = procfs.identity(now.main_pid) if now.main_pid else None
    if now.ended or who is None:
        return None
    if now.invocation == found.invocation:
        return found
    return replace(
        found, pid=who.pid, start_ticks=who.start_ticks, boot_id=who.boot_id, invocation=now.invocation, log=""
    )


def boot_log(running: Running) -> bytes:
    """The boot log of what runs: its file, else the journal.

    At most 16 MiB from the beginning, where the ledger is. Raises NoEvidence ``boot-log-missing`` and HostRefusal
    ``journal-unreadable``.
    """
    from archonctl.service.process import LOG_HEAD_BYTES

    if not running.log and running.unit:
        from archonctl.service.journal import journal_text

        found = journal_text(running.unit, running.invocation)
        return found or journal_text(running.unit, running.invocation, user=os.geteuid() != 0)
    try:
        with Path(running.log).open("rb") as file:
            return file.read(LOG_HEAD_BYTES)
    except OSError as err:
        why = f"the boot log cannot be read: {err.strerror}"
        raise NoEvidence("boot-log-missing", why, where=running.log, hint="give it with --log FILE") from None


def ledger_of_running(
    loaded: LoadedEndpoint, environ: Mapping[str, str], log: str | None = None
) -> tuple[BootLedger | None, str]:
    """The boot ledger of what runs, and where it came from in words; None where there is no log to read.

    A log that lacks something is waited for a little: an engine may serve before it has written all. ``log`` is a
    file that is read instead. Raises UsageError ``ledger-unreadable`` for one that cannot be.
    """
    from archonctl.ledger.reader import LedgerReader, read_ledger

    engine = loaded.endpoint.engine
    if log is not None:
        return read_ledger(log, engine.kind, engine.version), log
    running = find_running(EndpointState(state_dir(environ), loaded.name))
    if running is None:
        return None, f"none: nothing of {loaded.name} that archonctl up started is running; give a log with --log FILE"
    end = time.monotonic() + LAG_S
    while True:
        try:
            text = boot_log(running)
        except NoEvidence as err:
            return None, f"none: {err.message} ({running.log})"
        reader = LedgerReader(engine.kind, engine.version)
        reader.feed_block(text)
        ledger = reader.result()
        if ledger.is_whole or time.monotonic() > end:
            return ledger, running.log or f"the journal of {running.unit}"
        time.sleep(0.5)


def stop(state: EndpointState, grace_s: float = 10.0, where: Place = SYSTEM) -> Running | None:
    """Stop what an earlier ``up`` left running, and nothing else; None if nothing runs.

    A child is stopped under its supervisor, which then says that it died. Raises HostRefusal ``up-in-progress`` while
    a unit or a detached engine is being verified, ``not-permitted``, ``engine-unkillable``, ``systemctl-failed``.
    """
    found = find_recorded(state)
    if found is None:
        if state.recorded() is not None:
            state.clear()
        return stop_installed(state, where)
    if found.mode == "child":
        stop_process(found, grace_s)
        return found
    with state.lock():
        if found.mode == "unit":
            _stop_unit(found)
        else:
            stop_process(found, grace_s)
        state.clear()
    return found


def stop_installed(state: EndpointState, where: Place = SYSTEM) -> Running | None:
    """Stop ``archon@NAME.service``; None if that is down. Root waits for no apply; a polkit rule is enough for others.

    Raises HostRefusal ``up-in-progress``, ``not-permitted``, ``systemctl-failed``, ``pystemd-missing``.
    """
    from archonctl.service.dbus import open_bus

    found = find_installed(state.endpoint, where)
    if found is None:
        return None
    with (
        state.lock() if os.access(state.folder, os.W_OK) else contextlib.nullcontext(),
        open_bus(user=where.user) as bus,
    ):
        job = bus.begin("stop", found.unit)
        while (result := job.wait(1.0)) is None:
            pass
    if result != "done":
        why = f"the stop job of {found.unit} is {result!r}"
        raise HostRefusal("systemctl-failed", why, hint=f"systemctl status {found.unit}")
    return found


def _stop_unit(running: Running) -> None:
    from archonctl.service.unit import UNIT_DIR, remove, show, systemctl

    fragment = show(running.unit).fragment
    if fragment != str(UNIT_DIR / running.unit):
        raise HostRefusal(
            "unit-exists",
            f"{running.unit} is now defined in {fragment or 'no file'}, not by archonctl up",
            where=fragment,
            hint=f"systemctl stop {running.unit}",
        )
    systemctl("stop", running.unit, timeout_s=180)
    remove(running.unit)
