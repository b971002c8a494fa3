"""Drift: what runs, and what it runs on, against the release and against what its verdict was taken under.

A reboot resets the TTM limit; a person edits a unit; an image is pulled again; a kernel is updated. Each difference
has both values. What this user may not see is not checked, and said to be so: it is never "no drift".
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import zip_longest

from archonctl.errors import DeclarationError, HostRefusal
from archonctl.findings import Finding, Place
from archonctl.gate.running import Observed, Wanted, running_findings
from archonctl.release.load import StoredRelease
from archonctl.service.declared import declared_since
from archonctl.service.history import Record
from archonctl.service.installed import DROP_IN, Installed, argv_of, drop_in_of, env_of
from archonctl.service.running import cmdline_of, environ_of, environment_differences, runs
from archonctl.service.surroundings import WORDS, Facts, surroundings
from archonctl.service.transaction import WORDS as WORDS_OF_PHASE
from archonctl.service.unit import UnitState

_SECRET = re.compile(r"key|token|secret|password|credential", re.IGNORECASE)
_CODES = {
    "boot_id": "drift-boot",
    "kernel": "drift-kernel",
    "pages_limit": "drift-cap",
    "model_bytes": "drift-model",
    "model_mtime_ns": "drift-model",
    "image": "drift-image",
    "program": "drift-program",
    "unit_file": "drift-unit",
    "drop_ins": "drift-drop-in",
}
_FIXES = {
    "drift-boot": "archonctl verify {name} takes a new verdict",
    "drift-kernel": "archonctl verify {name} takes a new verdict on this kernel",
    "drift-cap": "archonctl apply {name} raises the limit under the running engine, or says why it cannot",
    "drift-model": "archonctl apply {name} checks the file, starts the engine on it and takes a new verdict",
    "drift-program": "archonctl apply {name} starts the program that is there now and verifies it",
    "drift-image": "archonctl apply {name}, or pull the image that was verified",
    "drift-unit": "systemctl cat archon@{name}; archonctl apply {name} places what belongs there",
    "drift-drop-in": "declare it, or remove it: systemctl cat archon@{name}",
    "drift-file": "archonctl apply {name} places it again",
    "drift-release": "archonctl apply {name} renders it anew",
    "drift-declaration": "archonctl apply {name} --check --diff says what an apply would take; else put it back",
    "drift-environ": "archonctl apply {name} restarts it with its own environment",
    "drift-stopped": "systemctl status archon@{name}; archonctl apply {name} starts it",
    "drift-unverified": "archonctl verify {name}",
    "drift-half-done": "archonctl apply {name}, or archonctl rollback {name}, finishes it",
}


@dataclass(frozen=True, slots=True)
class Drift:
    """All of one endpoint: every finding has both values. ``unchecked`` says what could not be looked at, and why."""

    endpoint: str
    release: str
    findings: tuple[Finding, ...]
    unchecked: tuple[str, ...] = ()


@dataclass
class _Look:
    """What was found so far."""

    name: str
    findings: list[Finding] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)

    def differs(self, code: str, what: str, expected: object, actual: object, place: str = "") -> None:
        """One thing that is not as it was, or not as rendered."""
        fix = _FIXES[code].format(name=self.name)
        self.findings.append(Finding(code, "error", f"{what}: expected {expected}, found {actual}", Place(place), fix))


def drift(installed: Installed, state: UnitState, verdict: Record | None) -> Drift:
    """Compare one installed endpoint. ``verdict`` is the event that its current release was last judged in.

    Raises HostRefusal ``state-unreadable``; a release that is missing or damaged is a finding, not an error.
    """
    digest, look = installed.current(), _Look(installed.name)
    if (pending := installed.pending()) is not None:
        what = f"a change to release {pending.new}, stopped {WORDS_OF_PHASE[pending.phase]}"
        look.differs("drift-half-done", "change in progress", "none", what)
    try:
        release = installed.stored(digest)
    except HostRefusal as err:
        look.differs("drift-release", "release", "as it was rendered", err.message, err.where)
        look.unchecked.append("everything that the release says")
        return Drift(installed.name, digest, tuple(look.findings), tuple(look.unchecked))
    _files(installed, release, state, look)
    if state.main_pid:
        _process(installed, release, state, look)
    else:
        look.differs("drift-stopped", installed.unit, "active", f"{state.active} ({state.result})")
    _since(installed, release, state, verdict, look)
    _declared(release, look)
    return Drift(installed.name, digest, tuple(look.findings), tuple(look.unchecked))


def _files(installed: Installed, release: StoredRelease, state: UnitState, look: _Look) -> None:
    """Unit and drop-in."""
    placed, wanted = installed.placed(), drop_in_of(release)
    if placed != wanted:
        was, now = _first_difference(wanted, placed or "")
        where = str(installed.drop_in_file)
        look.differs("drift-file", DROP_IN, was, now if placed is not None else "no such file", where)
    if state.stale:
        look.differs("drift-unit", "unit files", "as systemd read them", "changed since", state.fragment)
    if state.load not in ("loaded", ""):
        look.differs("drift-unit", installed.unit, "loaded", state.load, state.fragment)


def _declared(release: StoredRelease, look: _Look) -> None:
    """What the next apply would take in place of what runs."""
    where = str(release.loaded.path)
    try:
        found = declared_since(release.loaded)
    except DeclarationError as err:
        if err.code == "declaration-unreadable":
            look.unchecked.append(f"declaration: {where}: {err.message}")
        else:
            look.differs("drift-declaration", "declaration", "as it was applied", err.message, where)
        return
    if found:
        (key, was, now), more = found[0], f", and {len(found) - 1} more keys" if found[1:] else ""
        look.differs("drift-declaration", f"declared {key}", was, f"{now}{more}", where)


def _first_difference(wanted: str, found: str) -> tuple[str, str]:
    pairs = zip_longest(wanted.splitlines(), found.splitlines(), fillvalue="nothing")
    return next(((a, b) for a, b in pairs if a != b), ("its bytes", "other line breaks"))


def _process(installed: Installed, release: StoredRelease, state: UnitState, look: _Look) -> None:
    """argv and environment of the main process. A secret's value is not repeated."""
    pid, argv = state.main_pid, argv_of(release)
    found = cmdline_of(pid, installed.proc)
    if not found:
        look.unchecked.append(f"argv: /proc/{pid}/cmdline may not be read")
    elif not runs(argv, pid, installed.proc, installed.known_cmdline(installed.current())):
        wanted = Wanted(release.loaded.endpoint.engine.kind, argv)
        look.findings += running_findings(wanted, Observed(f"pid {pid}", argv=found))
    env = environ_of(pid, installed.proc)
    if env is None:
        look.unchecked.append(f"environment: /proc/{pid}/environ is for root and the engine's user")
        return
    for name, (was, now) in environment_differences(env_of(release), env).items():
        hidden = _SECRET.search(name) and now != "unset"
        look.differs("drift-environ", f"{name} of pid {pid}", was, "a value that is not shown" if hidden else now)


def _since(installed: Installed, release: StoredRelease, state: UnitState, verdict: Record | None, look: _Look) -> None:
    """What changed since the verdict."""
    if verdict is None:
        look.differs("drift-unverified", "verdict", "one on this release", "none was ever taken")
        return
    now = surroundings(installed, release, state)
    for name, word in WORDS.items():
        was, is_now = verdict.facts.get(name), now.get(name)
        if was is not None and is_now is None:
            look.unchecked.append(f"{word}: was {was}, cannot be told now")
        elif was is not None and was != is_now:
            look.differs(_CODES[name], f"{word} since the verdict", was, is_now)
    if not verdict.held:
        look.differs("drift-unverified", "verdict", "holds", verdict.verdict)
    elif state.main_pid and verdict.invocation != state.invocation and "boot_id" not in _changed(verdict, now):
        look.differs("drift-unverified", "verdict of start", state.invocation, verdict.invocation)


def _changed(verdict: Record, now: Facts) -> set[str]:
    return {name for name, was in verdict.facts.items() if now.get(name) != was}
