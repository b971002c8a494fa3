"""The real rooms and hands behind ``apply`` and ``rollback``."""

from __future__ import annotations

import json
import os
import pwd
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from archonctl.deployment.load import LoadedEndpoint
from archonctl.errors import HostRefusal
from archonctl.gate.endpoint import check_endpoint
from archonctl.plan.build import plan_endpoint
from archonctl.probe.values import Depth
from archonctl.release.load import StoredRelease
from archonctl.release.preflight_file import PREFLIGHT_FILE
from archonctl.release.render import command_of, render_release
from archonctl.release.store import DIGEST_CHARS
from archonctl.release.values import Release
from archonctl.service import procfs
from archonctl.service.artefact import check_artefact, image_of
from archonctl.service.dbus import Systemd, open_bus
from archonctl.service.events import Event, OnEvent, Say
from archonctl.service.gone import group_pids, wait_gone
from archonctl.service.installed import Installed
from archonctl.service.lookup import find_recorded
from archonctl.service.preflight import resolve_binary, split_listen
from archonctl.service.preview import ApplyRooms
from archonctl.service.surroundings import surroundings
from archonctl.service.turn import AttemptWord, Hands, Judged
from archonctl.service.unit import UnitState, show
from archonctl.service.unit_log import last_lines
from archonctl.service.verify import Place, verify_installed

PREFLIGHT = Path("/usr/lib/archon/ttm-preflight.sh")
_PREFLIGHT_S = 60.0
_REFUSED = re.compile(r"^ttm-preflight: refused: ([a-z-]+): (.*)$", re.MULTILINE)
_NOTE = re.compile(r"^ttm-preflight: note: (.*)$", re.MULTILINE)
_DEPTHS: tuple[Depth, ...] = ("ledger", "admission", "full")
_WORDS: tuple[AttemptWord, ...] = ("holds", "broken", "no evidence")
_VERDICT_LIMIT_BYTES = 8 << 20


def rooms(say: Say) -> ApplyRooms:
    """The rooms as they are."""

    def check(loaded: LoadedEndpoint, argv: tuple[str, ...], installed: Installed) -> tuple[str, ...]:
        return check_host(loaded, argv, installed, say)

    return ApplyRooms(plan_endpoint, check_endpoint, render, check, preflight)


@contextmanager
def hands() -> Iterator[Hands]:
    """The hands as they are, with the bus open. Raises HostRefusal, see ``open_bus``."""
    with open_bus() as bus:
        yield hands_over(bus)


def hands_over(systemd: Systemd) -> Hands:
    """The hands as they are, over this systemd."""

    def gone(release: StoredRelease | None, before: UnitState) -> None:
        port = split_listen(release.loaded.endpoint.service.listen)[1] if release else None
        wait_gone("the unit", before, port)

    def facts(installed: Installed, release: StoredRelease) -> dict[str, str | int]:
        return surroundings(installed, release, systemd.show(installed.unit))

    return Hands(systemd, written_verdict, judge, gone, last_lines, facts)


def render(loaded: LoadedEndpoint, home: Path) -> Release:
    """The release as the template unit will find it."""
    return render_release(loaded, command_of(loaded), home=home)


def check_host(loaded: LoadedEndpoint, argv: tuple[str, ...], installed: Installed, say: Say) -> tuple[str, ...]:
    """Program, user, port, image and model file; returns remarks. Raises HostRefusal, ModelError, DeclarationError."""
    endpoint = loaded.endpoint
    found = find_recorded(installed.state)
    if found is not None:
        what = f"unit {found.unit}" if found.unit else f"pid {found.pid}"
        hint = f"archonctl stop {installed.name} first"
        raise HostRefusal("already-running", f"archonctl up runs {installed.name} ({what})", hint=hint)
    resolve_binary(argv[0])
    user = endpoint.service.user
    if user and not user.isdigit() and user not in {entry.pw_name for entry in pwd.getpwall()}:
        raise HostRefusal("user-missing", f"there is no user {user}", where="service.user", hint=f"useradd -r {user}")
    _check_port(endpoint.service.listen, show(installed.unit))
    image_of(argv, endpoint.engine.image)
    return check_artefact(endpoint.model, installed.folder / "artefact.json", say)


def _check_port(listen: str, state: UnitState) -> None:
    """Held by nobody, or by the engine that will be stopped."""
    port = split_listen(listen)[1]
    ours = set(group_pids(state.control_group))
    foreign = [who for who in procfs.listeners(port) if who.pid not in ours]
    if foreign:
        hint = "stop it, or change service.listen"
        raise HostRefusal("port-in-use", f"port {port} is held by {foreign[0]}", where="service.listen", hint=hint)


def preflight(folder: Path, script: Path = PREFLIGHT) -> tuple[str, ...]:
    """The host's dry run for a stored release, while the old engine still runs; returns its notes.

    Raises HostRefusal with the script's own code and figures, or ``preflight-failed`` if it gives no reason.
    """
    file = folder / PREFLIGHT_FILE
    if not file.exists() or not script.exists():
        return (f"no preflight was tried: {file.name if script.exists() else script} is not there",)
    command = [str(script), "--check", "--replacing", str(file)]
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


def written_verdict(installed: Installed, digest: str, invocation: str, depth: Depth) -> Judged | None:
    """The verdict that this very start wrote down, if it looked as deep as is wanted (or found it broken)."""
    path = Place.of(os.environ).verdict(installed.name)
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            is_ours = os.fstat(handle).st_uid in (0, os.geteuid())
            value = json.loads(file.read(_VERDICT_LIMIT_BYTES)) if is_ours else None
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or not invocation or value.get("invocation") != invocation:
        return None
    word = next((each for each in _WORDS if each == value.get("verdict")), None)
    if word is None or str(value.get("release", ""))[:DIGEST_CHARS] != digest:
        return None
    judged = _judged(word, value)
    if word == "holds" and (judged.depth not in _DEPTHS or _DEPTHS.index(judged.depth) < _DEPTHS.index(depth)):
        return None
    return judged


def judge(installed: Installed, depth: Depth, say: Say) -> Judged:
    """Ask what runs now, apart from root's rights. Raises ArchonError, see ``verify_installed``."""

    def tell(event: Event) -> None:
        say(event.phase, event.text, event.fraction, progress=event.progress)

    hear: OnEvent = tell
    found = verify_installed(installed.name, Place.of(os.environ), depth=depth, on_event=hear)
    return _judged(found.word, dict(found.value))


def _judged(word: AttemptWord, value: dict[str, object]) -> Judged:
    reasons, legs, facts = value.get("reasons"), value.get("legs"), value.get("facts")
    codes = [str(value["code"])] if value.get("code") else []
    if isinstance(legs, list):
        codes += [str(leg["code"]) for leg in legs if isinstance(leg, dict) and leg.get("status") == "fail"]
    depth = str(facts.get("depth", "")) if isinstance(facts, dict) else ""
    texts = tuple(map(str, reasons)) if isinstance(reasons, list) else ()
    return Judged(word, texts, tuple(dict.fromkeys(code for code in codes if code)), depth)
