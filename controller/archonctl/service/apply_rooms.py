"""The real rooms and hands behind ``apply`` and ``rollback``."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from archonctl.deployment.load import LoadedEndpoint
from archonctl.errors import HostRefusal
from archonctl.gate.endpoint import check_endpoint
from archonctl.host.load import load_host
from archonctl.plan.values import Plan
from archonctl.probe.values import Depth
from archonctl.release.load import StoredRelease
from archonctl.release.preflight_file import PREFLIGHT_FILE, preflight_text
from archonctl.release.render import command_of, render_release
from archonctl.release.values import Release
from archonctl.service import procfs
from archonctl.service.artefact import check_artefact, image_of
from archonctl.service.dbus import Job, JobVerb, Systemd, dependants, open_bus
from archonctl.service.engine_account import check_access, engine_account
from archonctl.service.events import Event, OnEvent, Say
from archonctl.service.gone import group_pids, wait_gone
from archonctl.service.installed import Installed
from archonctl.service.journal import check_kept
from archonctl.service.lookup import find_recorded
from archonctl.service.plan_here import plan_here
from archonctl.service.preflight import resolve_binary, split_listen
from archonctl.service.preview import ApplyRooms
from archonctl.service.surroundings import changed, surroundings
from archonctl.service.turn import Hands, Judged
from archonctl.service.unit import UNIT_DIR, UnitState, show
from archonctl.service.unit_log import last_lines
from archonctl.service.verdicts import judged_of, written_verdict
from archonctl.service.verify import verify_installed

PREFLIGHT = Path("/usr/lib/archon/ttm-preflight.sh")
_PREFLIGHT_S = 60.0
_REFUSED = re.compile(r"^ttm-preflight: refused: ([a-z-]+): (.*)$", re.MULTILINE)
_NOTE = re.compile(r"^ttm-preflight: note: (.*)$", re.MULTILINE)


def rooms(say: Say, *, user: bool = False) -> ApplyRooms:
    """The rooms as they are; ``user``: for a user's own service manager, where root checks nothing."""

    def check(loaded: LoadedEndpoint, argv: tuple[str, ...], installed: Installed) -> tuple[str, ...]:
        return check_host(loaded, argv, installed, say)

    def ready(folder: Path) -> tuple[str, ...]:
        check_kept()
        return no_preflight(folder) if user else preflight(folder)

    return ApplyRooms(
        plan_here,
        check_endpoint,
        partial(render, user=user),
        check,
        ready,
        changed,
        no_preflight if user else raise_limit,
    )


@contextmanager
def hands(*, user: bool = False) -> Iterator[Hands]:
    """The hands as they are, with the bus open; ``user``: over this user's own service manager.

    Raises HostRefusal ``no-systemd``, and as ``open_bus``.
    """
    _need_systemd()
    with open_bus(user=user) as bus:
        yield hands_over(bus, user=user)


@contextmanager
def looking_hands(*, user: bool = False) -> Iterator[Hands]:
    """Hands that only look: no bus is opened, and no privilege is needed. Raises HostRefusal ``no-systemd``."""
    _need_systemd()
    yield hands_over(Looking(user), user=user)


def _need_systemd() -> None:
    if not UNIT_DIR.is_dir():
        hint = "archonctl up runs an endpoint without systemd"
        raise HostRefusal("no-systemd", "systemd is not process 1 here, and units are all that is changed", hint=hint)


class Looking:
    """systemd as anybody may ask it; a start, a stop or a reload is refused."""

    def __init__(self, user: bool = False) -> None:
        self._user = user

    def show(self, unit: str) -> UnitState:
        """See ``Systemd``."""
        return show(unit, user=self._user)

    def dependants(self, unit: str) -> tuple[str, ...]:
        """See ``Systemd``."""
        return dependants(unit, user=self._user)

    def reload(self) -> None:
        """Refused."""
        raise _only_looking("daemon-reload")

    def reset_failed(self, unit: str) -> None:
        """Refused."""
        raise _only_looking(f"reset-failed {unit}")

    def begin(self, verb: JobVerb, unit: str) -> Job:
        """Refused."""
        raise _only_looking(f"{verb} {unit}")


def _only_looking(what: str) -> HostRefusal:
    return HostRefusal("not-permitted", f"--check changes nothing: no {what}", hint="leave out --check")


def hands_over(systemd: Systemd, *, user: bool = False) -> Hands:
    """The hands as they are, over this systemd."""

    def gone(release: StoredRelease | None, before: UnitState) -> None:
        port = split_listen(release.loaded.endpoint.service.listen)[1] if release else None
        wait_gone("the unit", before, port)

    def facts(installed: Installed, release: StoredRelease) -> dict[str, str | int]:
        return surroundings(installed, release, systemd.show(installed.unit))

    return Hands(systemd, written_verdict, judge, gone, partial(last_lines, user=user), facts)


def render(loaded: LoadedEndpoint, home: Path, plan: Plan, *, user: bool = False) -> Release:
    """The release as the template unit will find it, with what root's preflight has to check."""
    command = command_of(loaded)
    checks = preflight_text(loaded.name, loaded.endpoint.engine.kind, command, plan.forecast, load_host(loaded))
    return render_release(loaded, command, home=home, preflight=checks, own_manager=user)


def check_host(loaded: LoadedEndpoint, argv: tuple[str, ...], installed: Installed, say: Say) -> tuple[str, ...]:
    """Program, user, port, image and model file; returns remarks. Raises HostRefusal, ModelError, DeclarationError."""
    endpoint = loaded.endpoint
    found = find_recorded(installed.state)
    if found is not None:
        what = f"unit {found.unit}" if found.unit else f"pid {found.pid}"
        hint = f"archonctl stop {installed.name} first"
        raise HostRefusal("already-running", f"archonctl up runs {installed.name} ({what})", hint=hint)
    program = resolve_binary(argv[0])
    account = engine_account(endpoint, installed.name, installed.where)
    remarks = check_access(account, program, endpoint.model.path) if account else ()
    _check_port(endpoint.service.listen, show(installed.unit, user=installed.where.user))
    image_of(argv, endpoint.engine.image, account)
    return (*remarks, *check_artefact(endpoint.model, installed.folder / "artefact.json", say))


def _check_port(listen: str, state: UnitState) -> None:
    """Held by nobody, or by the engine that will be stopped."""
    port = split_listen(listen)[1]
    ours = set(group_pids(state.control_group))
    foreign = [who for who in procfs.listeners(port) if who.pid not in ours]
    if foreign:
        hint = "stop it, or change service.listen"
        raise HostRefusal("port-in-use", f"port {port} is held by {foreign[0]}", where="service.listen", hint=hint)


def raise_limit(folder: Path) -> tuple[str, ...]:
    """Have root's preflight raise the kernel's limit, under the running engine. Raises as ``preflight``."""
    return preflight(folder, how="--raise")


def preflight(folder: Path, script: Path = PREFLIGHT, how: str = "--check") -> tuple[str, ...]:
    """The host's dry run for a stored release, while the old engine still runs; returns its notes.

    Raises HostRefusal with the script's own code and figures, or ``preflight-failed`` if it gives no reason.
    """
    file = folder / PREFLIGHT_FILE
    if not file.exists() or not script.exists():
        return (f"no preflight was tried: {file.name if script.exists() else script} is not there",)
    command = [str(script), how, "--replacing", str(file)]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_PREFLIGHT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as err:
        raise HostRefusal("preflight-failed", f"{type(err).__name__} {err}", where=str(script)) from None
    said = done.stderr + done.stdout
    if done.returncode == 0:
        return tuple(_NOTE.findall(said))
    if found := _REFUSED.search(said):
        raise HostRefusal(found[1], found[2], where=str(file))
    last = said.strip().splitlines()[-1:] or [f"exit {done.returncode}"]
    raise HostRefusal("preflight-failed", f"{script.name}: exit {done.returncode}: {last[0]}", where=str(file))


def no_preflight(_folder: Path) -> tuple[str, ...]:
    """What is said instead in a user's own service manager."""
    return ("root's preflight is not run for a user's own unit: no limit is raised",)


def judge(installed: Installed, depth: Depth, say: Say) -> Judged:
    """Ask what runs now, apart from root's rights. Raises ArchonError, see ``verify_installed``."""

    def tell(event: Event) -> None:
        say(event.phase, event.text, event.fraction, progress=event.progress)

    hear: OnEvent = tell
    found = verify_installed(installed.name, installed.where, depth=depth, on_event=hear)
    return judged_of(found.word, dict(found.value))
