"""One declaration as the checks need it: the endpoint, its plan, and what it asks of a machine."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from archonctl.deployment.load import LoadedEndpoint, load_endpoint
from archonctl.deployment.schema import Endpoint
from archonctl.doctor.values import Result, failed, of_error, passed, unseen
from archonctl.engines.base import CommandLine
from archonctl.errors import ArchonError
from archonctl.host.load import load_host
from archonctl.plan.values import Plan
from archonctl.release.preflight_file import parse_preflight, preflight_text
from archonctl.release.render import INSTALLED, command_of
from archonctl.service.engine_account import TEMPLATE_USER
from archonctl.service.plan_here import plan_here


@dataclass(frozen=True, slots=True)
class Subject:
    """``declaration`` and ``plan`` are what those two checks say. The rest is empty where it cannot be known."""

    name: str
    path: str
    declaration: Result
    plan: tuple[Result, ...]
    endpoint: Endpoint | None = None
    command: CommandLine | None = None
    refusal: Result | None = None
    """Why no command line follows from it."""
    needs: Mapping[str, str | int] = field(default_factory=dict)
    """The keys of its ``preflight.env``: what root checks before a start."""
    floor_mib: int | None = None
    """Pinned memory that the TTM limit must allow."""
    cards: int = 0
    """Cards that its host is declared to have."""
    elsewhere: str = ""
    """Why this machine is not judged for it; empty where it is."""
    installed: bool = False

    @property
    def here(self) -> bool:
        """True if this machine is the one that has to run it."""
        return self.endpoint is not None and not self.elsewhere

    def number(self, key: str) -> int:
        """A figure of ``needs``; 0 where it asks for nothing."""
        value = self.needs.get(key, 0)
        return value if isinstance(value, int) else 0

    @property
    def devices(self) -> tuple[str, ...]:
        """Device nodes that must be there."""
        named = str(self.needs.get("DEVICES", ""))
        return tuple(named.split(",")) if named else ()

    @property
    def wants_cards(self) -> bool:
        """True if it is declared to run on a GPU."""
        spec = self.command.container if self.command else None
        return bool(self.cards or self.devices or (spec and (spec.gpus or spec.devices)))

    @property
    def account(self) -> str:
        """Whom it runs as; empty for whoever starts it."""
        declared = self.endpoint.service.user if self.endpoint else ""
        return declared or (TEMPLATE_USER if self.installed else "")


def study(path: Path, environ: Mapping[str, str], root: Path, hostname: str, *, is_named: bool, cwd: Path) -> Subject:
    """Load, plan and size one declaration. Raises nothing of the project's own family of errors.

    ``is_named``: the user asks about it on this machine, whatever its host profile is called.
    """
    try:
        loaded = load_endpoint(path, {}, environ, cwd)
    except ArchonError as err:
        lost = unseen("not planned: the declaration cannot be used")
        return Subject(path.stem, str(path), of_error(err, theirs=os.geteuid() != 0), (lost,))
    endpoint, name = loaded.endpoint, loaded.name
    promise = f"{endpoint.contract.seqs:,} x {endpoint.contract.len:,} tokens"
    declaration = passed(f"{path}: {promise} on {endpoint.engine.kind} {endpoint.engine.version}".rstrip())
    installed = os.path.exists(root / INSTALLED.relative_to("/") / name)  # noqa: PTH110  False rather than an exception
    elsewhere = "" if is_named or installed else _elsewhere(loaded, hostname)
    theirs = os.geteuid() != 0 and (installed or endpoint.service.user not in ("", str(os.geteuid())))
    plan, results = _planned(loaded, theirs=theirs)
    command, refusal = _command(loaded)
    subject = Subject(name, str(path), declaration, results, endpoint, command, refusal)
    subject = replace(subject, elsewhere=elsewhere, installed=installed)
    return _with_needs(subject, loaded, plan) if plan else subject


def _elsewhere(loaded: LoadedEndpoint, hostname: str) -> str:
    """A profile of a named machine speaks of that one; a detected or unknown host is this one."""
    try:
        host = load_host(loaded) if loaded.endpoint.host.profile else None
    except ArchonError:
        return ""
    if host is None or host.name in ("", hostname):
        return ""
    this = hostname or "another one"
    return f"declared for host {host.name}, this is {this}; archonctl doctor {loaded.name} looks all the same"


def _planned(loaded: LoadedEndpoint, *, theirs: bool) -> tuple[Plan | None, tuple[Result, ...]]:
    """The plan as ``archonctl plan`` has it, and what the check says of it."""
    try:
        plan = plan_here(loaded)
    except ArchonError as err:
        return None, (of_error(err, theirs=theirs),)
    wanted, tokens = plan.contract.tokens_with_margin, plan.forecast.kv_tokens
    if plan.verdict == "holds":
        have = f"{int(tokens.best):,} tokens planned, " if tokens else ""
        return plan, (passed(f"holds: {have}{wanted:,} wanted"),)
    if plan.verdict == "unknown":
        fix = f"archonctl plan {loaded.name} shows what is missing"
        return plan, tuple(unseen(f"unknown: {reason}", fix) for reason in plan.reasons)
    fix = plan.forecast.levers[0].text if plan.forecast.levers else f"archonctl plan {loaded.name}"
    return plan, tuple(failed("contract-short", reason, fix) for reason in plan.reasons)


def _command(loaded: LoadedEndpoint) -> tuple[CommandLine | None, Result | None]:
    try:
        return command_of(loaded), None
    except ArchonError as err:
        return None, of_error(err)


def _with_needs(subject: Subject, loaded: LoadedEndpoint, plan: Plan) -> Subject:
    host = load_host(loaded)
    floor = plan.forecast.host_need.ttm_floor_mib
    needs: Mapping[str, str | int] = {}
    if subject.command is not None:
        try:
            kind = loaded.endpoint.engine.kind
            text = preflight_text(loaded.name, kind, subject.command, plan.forecast, host)
            needs = parse_preflight(text.encode("utf-8"))
        except ArchonError:
            needs = {}  # a name or a figure that no preflight file holds: the gate and render refuse it
    cards = len(host.cards) if loaded.endpoint.host.profile else 0
    return replace(subject, needs=needs, floor_mib=floor, cards=cards)
