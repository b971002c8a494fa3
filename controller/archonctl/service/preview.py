"""What an apply would do, found out without touching anything: plan, gate, render, and the difference to what runs."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from archonctl.deployment.load import LoadedEndpoint
from archonctl.errors import ArchonError, GateRefusal, HostRefusal
from archonctl.findings import Finding, refuses
from archonctl.plan.values import Plan
from archonctl.release.load import StoredRelease
from archonctl.release.preflight_file import PREFLIGHT_FILE
from archonctl.release.render import DROP_IN_FILE, ENV_FILE
from archonctl.release.store import DIGEST_CHARS
from archonctl.release.values import Release
from archonctl.service.installed import Installed, argv_of, drop_in_of, env_of
from archonctl.service.running import cmdline_of, runs
from archonctl.service.surroundings import WORDS
from archonctl.service.unit import UnitState

Action = Literal["nothing", "verify", "start", "restart"]
"""It runs and holds; it runs and has to be asked; nothing runs; another release runs."""


@dataclass(frozen=True)
class ApplyRooms:
    """What is asked of other rooms before anything is touched, as functions.

    ``check`` raises for a program, user, model file or image that is not as declared, and returns remarks.
    ``preflight`` is the host's dry run for a stored release; it raises HostRefusal and returns remarks.
    """

    plan: Callable[[LoadedEndpoint], Plan]
    gate: Callable[[LoadedEndpoint], tuple[Finding, ...]]
    render: Callable[[LoadedEndpoint, Path, Plan], Release]
    check: Callable[[LoadedEndpoint, tuple[str, ...], Installed], tuple[str, ...]]
    preflight: Callable[[Path], tuple[str, ...]]
    changed: Callable[[Installed, UnitState], frozenset[str]] = lambda _installed, _state: frozenset()
    """Which facts of the last verdict are no longer so (``surroundings.WORDS``)."""
    raise_limit: Callable[[Path], tuple[str, ...]] = lambda _folder: ()
    """Raises the kernel's limit under a running engine; raises HostRefusal and returns remarks as ``preflight``."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One rendered file that differs, as lines of a unified diff."""

    file: str
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Preview:
    """What would be done. ``old`` is the digest of the current release; ``loss`` names who stops serving meanwhile."""

    endpoint: str
    unit: str
    action: Action
    new: str
    old: str
    plan: Plan | None
    release: Release | None
    findings: tuple[Finding, ...] = ()
    differences: tuple[Difference, ...] = ()
    remarks: tuple[str, ...] = ()
    not_previewed: tuple[str, ...] = ()
    loss: str = ""
    changed: frozenset[str] = frozenset()
    """What is not as it was at the verdict, where the release is the running one."""


class GateRefused(GateRefusal):
    """The gate found errors; the first is the message, the others follow as its tail."""

    def __init__(self, findings: Iterable[Finding]) -> None:
        errors = [f for f in findings if f.severity == "error"]
        first = errors[0]
        super().__init__(first.code, first.message, where=str(first.place), hint=first.fix)
        self.tail = tuple(map(str, errors[1:]))


def preview(loaded: LoadedEndpoint, rooms: ApplyRooms, installed: Installed, state: UnitState) -> Preview:
    """Judge and render. Writes nothing, and needs no privileges.

    Raises GateRefusal ``contract-short`` or the gate's first finding; HostRefusal, ModelError, DeclarationError from
    the checks; HostRefusal ``unit-not-installed``.
    """
    if state.load == "not-found":
        why = f"{installed.unit} has no unit file"
        words = "archonctl install --user" if installed.where.user else "archonctl install"
        raise HostRefusal("unit-not-installed", why, hint=f"{words} places archon@.service")
    plan = rooms.plan(loaded)
    refuse_short(loaded, plan)
    findings = rooms.gate(loaded)
    if refuses(findings):
        raise GateRefused(findings)
    release = rooms.render(loaded, installed.home, plan)
    remarks = [*(f"plan: {reason}" for reason in plan.reasons), *rooms.check(loaded, release.argv, installed)]
    remarks += [str(finding) for finding in findings]
    new, old = release.digest[:DIGEST_CHARS], installed.current()
    differs = rooms.changed(installed, state) if new == old else frozenset()
    remarks += [f"since the verdict another {WORDS[name]}" for name in sorted(differs)]
    return Preview(
        loaded.name,
        installed.unit,
        action_for(
            installed,
            state,
            new,
            release.argv,
            release.files[DROP_IN_FILE].content.decode(),
            differs,
            model_checked=loaded.endpoint.model.sha256 is not None,
        ),
        new,
        old,
        plan,
        release,
        findings,
        differences(installed, old, state, release),
        tuple(remarks),
        ("the host's preflight of the new release", "the start itself", "the verdict"),
        loss_of(installed, state),
        differs,
    )


def refuse_short(loaded: LoadedEndpoint, plan: Plan) -> None:
    """Raises GateRefusal ``contract-short`` for a plan that falls short; an unknown capacity passes."""
    if plan.verdict == "short":
        levers = plan.forecast.levers
        hint = levers[0].text if levers else "see archonctl plan"
        raise GateRefusal("contract-short", "; ".join(plan.reasons), where=str(loaded.path), hint=hint)


_OF_MODEL = frozenset({"model_bytes", "model_mtime_ns"})
_NEED_START = _OF_MODEL | {"program", "image"}
"""Facts that a running engine does not follow: it was started on what was there before."""


def action_for(
    installed: Installed,
    state: UnitState,
    new: str,
    argv: tuple[str, ...],
    drop_in: str,
    changed: frozenset[str] = frozenset(),
    *,
    model_checked: bool = False,
) -> Action:
    """What it takes to have ``new`` running.

    ``changed``: the facts that are not as they were at its verdict. ``model_checked``: the model's contents are
    known to be the declared ones, whatever its times say.
    """
    if state.ended:
        return "start"
    placed = installed.current() == new and installed.placed() == drop_in
    same = placed and runs(argv, state.main_pid, installed.proc, installed.known_cmdline(new))
    if not same or state.active != "active":
        return "restart"
    last = installed.history().last(new)
    if last is None or not last.held or last.invocation != state.invocation:
        return "verify"
    if changed & (_NEED_START - _OF_MODEL if model_checked else _NEED_START):
        return "restart"
    return "verify" if changed & {"pages_limit", *_OF_MODEL} else "nothing"


def loss_of(installed: Installed, state: UnitState) -> str:
    """Who stops serving meanwhile, in words; empty if nobody does."""
    if state.ended:
        return ""
    return f"{installed.unit} (pid {state.main_pid}, release {installed.current() or 'unknown'})"


def differences(installed: Installed, old: str, state: UnitState, release: Release) -> tuple[Difference, ...]:
    """argv, environment and drop-in of the new release against what runs, else what is installed."""
    before = _stored(installed, old)
    argv = cmdline_of(state.main_pid, installed.proc) if state.main_pid else ()
    if not argv and before is not None:
        argv = argv_of(before)
    env: Mapping[str, str] = env_of(before) if before is not None else {}
    pairs = (
        ("argv", argv, release.argv),
        (ENV_FILE, _env_lines(env), _env_lines(release.env)),
        (
            DROP_IN_FILE,
            (installed.placed() or "").splitlines(),
            release.files[DROP_IN_FILE].content.decode().splitlines(),
        ),
    )
    file = release.files.get(PREFLIGHT_FILE)
    was_there = before.files.get(PREFLIGHT_FILE, b"") if before is not None else b""
    checks = (PREFLIGHT_FILE, was_there.decode().splitlines(), file.content.decode().splitlines() if file else [])
    found = []
    for name, was, becomes in (*pairs, checks):
        lines = tuple(difflib.unified_diff(list(was), list(becomes), f"{name} now", f"{name} new", lineterm="", n=2))
        if lines:
            found.append(Difference(name, lines))
    return tuple(found)


def _stored(installed: Installed, digest: str) -> StoredRelease | None:
    """A stored release; None where there is none or it was damaged: everything is then shown as new."""
    try:
        found = installed.stored(digest) if digest else None
        if found is not None:
            drop_in_of(found)
    except (ArchonError, KeyError, ValueError):
        return None
    return found


def _env_lines(env: Mapping[str, str]) -> list[str]:
    return [f"{name}={env[name]}" for name in sorted(env)]
