"""Drift: what runs, and what it runs on, against the release and against what its verdict was taken under.

A reboot resets the TTM limit; a person edits a unit; an image is pulled again; a kernel is updated. Each difference
has both values. What this user may not see is not checked, and said to be so: it is never "no drift".
"""

from __future__ import annotations

from dataclasses import dataclass

from archonctl.errors import HostRefusal
from archonctl.findings import Finding, Place
from archonctl.release.load import StoredRelease
from archonctl.service.history import Record
from archonctl.service.installed import DROP_IN, Installed, argv_of, drop_in_of, env_of
from archonctl.service.running import cmdline_of, environ_of, environment_differences, runs
from archonctl.service.surroundings import WORDS, surroundings
from archonctl.service.unit import UnitState

_CODES = {
    "boot_id": "drift-boot",
    "kernel": "drift-kernel",
    "pages_limit": "drift-cap",
    "model_bytes": "drift-model",
    "model_mtime_ns": "drift-model",
    "image": "drift-image",
    "unit_file": "drift-unit",
    "drop_ins": "drift-unit",
}
_FIXES = {
    "drift-boot": "archonctl verify {name} takes a new verdict",
    "drift-kernel": "archonctl verify {name} takes a new verdict on this kernel",
    "drift-cap": "archonctl apply {name}: its preflight raises the limit, or says why it cannot",
    "drift-model": "archonctl apply {name} checks the file and takes a new verdict",
    "drift-image": "archonctl apply {name}, or pull the image that was verified",
    "drift-unit": "systemctl cat archon@{name}; archonctl apply {name} places what belongs there",
    "drift-drop-in": "archonctl apply {name} places it again",
    "drift-release": "archonctl apply {name} renders it anew",
    "drift-env": "archonctl apply {name} restarts it with its own environment",
    "drift-argv": "archonctl apply {name} restarts it with its own command line",
    "drift-stopped": "systemctl status archon@{name}; archonctl apply {name} starts it",
    "drift-unverified": "archonctl verify {name}",
    "drift-half-done": "archonctl apply {name}, or archonctl rollback {name}, finishes it",
}


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that is not as it was, or not as rendered: ``expected`` and ``actual`` as texts."""

    code: str
    what: str
    expected: str
    actual: str
    place: str = ""

    def finding(self, endpoint: str) -> Finding:
        """The same as every check puts it."""
        message = f"{self.what}: expected {self.expected}, found {self.actual}"
        return Finding(self.code, "error", message, Place(self.place), _FIXES[self.code].format(name=endpoint))


@dataclass(frozen=True, slots=True)
class Drift:
    """All of one endpoint. ``unchecked`` says what could not be looked at, and why."""

    endpoint: str
    release: str
    differences: tuple[Difference, ...]
    unchecked: tuple[str, ...] = ()


def drift(installed: Installed, state: UnitState, verdict: Record | None) -> Drift:
    """Compare one installed endpoint. ``verdict`` is the event that its current release was last judged in.

    Raises HostRefusal ``state-unreadable``; a release that is missing or damaged is a difference, not an error.
    """
    digest = installed.current()
    found: list[Difference] = []
    unchecked: list[str] = []
    if (pending := installed.pending()) is not None:
        what = f"a change to release {pending.new} is half done"
        found.append(Difference("drift-half-done", "phase", "no change in progress", what))
    try:
        release = installed.stored(digest)
    except HostRefusal as err:
        found.append(Difference("drift-release", "release", "as it was rendered", err.message, err.where))
        return Drift(installed.name, digest, tuple(found), ("everything that the release says",))
    found += _installed(installed, release, state)
    found += _running(installed, release, state, unchecked)
    found += _since(installed, release, state, verdict, unchecked)
    return Drift(installed.name, digest, tuple(found), tuple(unchecked))


def _installed(installed: Installed, release: StoredRelease, state: UnitState) -> list[Difference]:
    found = []
    placed, wanted = installed.placed(), drop_in_of(release)
    if placed != wanted:
        was, now = _first_difference(wanted, placed or "")
        where = str(installed.drop_in_file)
        found.append(Difference("drift-drop-in", DROP_IN, was, now if placed is not None else "no such file", where))
    if state.stale:
        found.append(Difference("drift-unit", "unit files", "as systemd read them", "changed since", state.fragment))
    if state.load not in ("loaded", ""):
        found.append(Difference("drift-unit", installed.unit, "loaded", state.load, state.fragment))
    return found


def _first_difference(wanted: str, found: str) -> tuple[str, str]:
    pairs = zip(_padded(wanted, found), _padded(found, wanted), strict=True)
    return next(((a or "nothing", b or "nothing") for a, b in pairs if a != b), ("its bytes", "other line breaks"))


def _padded(text: str, other: str) -> list[str]:
    lines = text.splitlines()
    return lines + [""] * (len(other.splitlines()) - len(lines))


def _running(installed: Installed, release: StoredRelease, state: UnitState, unchecked: list[str]) -> list[Difference]:
    if not state.main_pid:
        return [Difference("drift-stopped", installed.unit, "active", f"{state.active} ({state.result})")]
    found = []
    argv = cmdline_of(state.main_pid, installed.proc)
    if not argv:
        unchecked.append(f"argv: /proc/{state.main_pid}/cmdline may not be read")
    elif not runs(argv_of(release), state.main_pid, installed.proc):
        was, now = _first_difference("\n".join(argv_of(release)), "\n".join(argv))
        found.append(Difference("drift-argv", f"argv of pid {state.main_pid}", was, now))
    env = environ_of(state.main_pid, installed.proc)
    if env is None:
        unchecked.append(f"env: /proc/{state.main_pid}/environ is for root and the engine's user")
    else:
        differs = environment_differences(env_of(release), env)
        found += [Difference("drift-env", name, was, now) for name, (was, now) in differs.items()]
    return found


def _since(
    installed: Installed, release: StoredRelease, state: UnitState, verdict: Record | None, unchecked: list[str]
) -> list[Difference]:
    """What changed since the verdict."""
    if verdict is None:
        return [Difference("drift-unverified", "verdict", "one on this release", "none was ever taken")]
    now = surroundings(installed, release, state)
    found = []
    for name, word in WORDS.items():
        was, is_now = verdict.facts.get(name), now.get(name)
        if was is None:
            continue
        if is_now is None:
            unchecked.append(f"{word}: was {was}, cannot be told now")
        elif was != is_now:
            found.append(Difference(_CODES[name], f"{word} since the verdict", str(was), str(is_now)))
    if not verdict.held:
        found.append(Difference("drift-unverified", "verdict", "holds", verdict.verdict))
    elif state.main_pid and verdict.invocation != state.invocation and not _is_new_boot(found):
        found.append(Difference("drift-unverified", "start", verdict.invocation, state.invocation))
    return found


def _is_new_boot(found: list[Difference]) -> bool:
    return any(difference.code == "drift-boot" for difference in found)
