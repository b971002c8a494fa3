"""What ``up`` is given and what it answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from archonctl.deployment.load import LoadedEndpoint
from archonctl.ledger.values import BootLedger
from archonctl.plan.values import Plan
from archonctl.probe.values import Verdict
from archonctl.service.exits import ExitStatus
from archonctl.service.follow import Boot
from archonctl.service.process import GRACE_S
from archonctl.service.state import Running

RunAs = Literal["auto", "unit", "child", "detached"]
Ended = Literal["running", "stopped", "died", "interrupted"]


@dataclass(frozen=True, slots=True)
class Options:
    """How to go about a start. ``run_as`` "auto" is a unit where systemd can be used, else a child.

    ``grace_s`` is the time between SIGTERM and SIGKILL of a child.
    """

    once: bool = False
    force: bool = False
    keep: bool = False
    run_as: RunAs = "auto"
    grace_s: float = GRACE_S


@dataclass(frozen=True, slots=True)
class Prepared:
    """One rendered release: what to start. ``folder`` is where it is stored."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    unit: str
    unit_text: str
    folder: str


class Reader(Protocol):
    """The part of ``archonctl.ledger.reader.LedgerReader`` that a start needs."""

    def feed(self, line: str) -> object:
        """Take a line."""
        ...

    def result(self) -> BootLedger:
        """The ledger so far."""
        ...


@dataclass(frozen=True, slots=True)
class Rooms:
    """What ``up`` asks of other rooms, as functions; ``rooms.real`` gives the real ones.

    ``check`` raises what must be known before a start; it returns the model's bytes (None: unknown).
    ``prepare`` renders and stores a release below the given folder. ``probe`` gets the endpoint, the ledger and
    a function for one line of progress with an optional fraction. ``health_path`` is the engine's.
    """

    plan: Callable[[LoadedEndpoint], Plan]
    check: Callable[[LoadedEndpoint], int | None]
    prepare: Callable[[LoadedEndpoint, Path], Prepared]
    reader: Callable[[LoadedEndpoint], Reader]
    health_path: Callable[[LoadedEndpoint], str]
    probe: Callable[[LoadedEndpoint, BootLedger, Callable[[str, float | None], None]], Verdict]


@dataclass(frozen=True, slots=True)
class UpResult:
    """A start from its plan to its verdict, and what became of the engine.

    ``ended``: "running" (it was left so: as a unit, or detached), "stopped" (by us, after the verdict), "died"
    (by itself, ``exit`` says how), "interrupted" (a signal ended the supervision after the verdict).
    While ``on_verdict`` is called, the engine still runs and ``ended`` is "running".
    """

    endpoint: str
    plan: Plan
    release: str
    running: Running
    boot: Boot
    ledger: BootLedger
    verdict: Verdict
    ended: Ended
    exit: ExitStatus | None = None
    signal: int | None = None


OnVerdict = Callable[[UpResult], None]
