"""What became of each host of a run over many, and the one exit code of them all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Action = Literal["apply", "rollback", "probe", "status", "drift"]
CHANGES: tuple[Action, ...] = ("apply", "rollback")
"""What changes hosts; the rest looks."""
HostWord = Literal[
    "holds",
    "checked",
    "drift",
    "no evidence",
    "unreachable",
    "in flight",
    "refused",
    "busy",
    "failed",
    "rolled back",
    "broken",
    "lost",
    "untouched",
]
"""``checked``: only looked at. ``busy``: another archonctl has the endpoint. ``in flight``: Ctrl-C came while it was
being changed, which goes on there by itself. ``failed``: a task of the rollout itself. ``lost``: rolled back, and the
old release does not hold either. ``untouched``: it was not its turn."""

EXIT: dict[HostWord, int] = {
    "holds": 0,
    "checked": 0,
    "untouched": 0,
    "drift": 8,
    "no evidence": 3,
    "unreachable": 3,
    "in flight": 3,
    "refused": 4,
    "busy": 5,
    "failed": 5,
    "rolled back": 6,
    "broken": 1,
    "lost": 7,
}
"""A refusal has its own code (2, 4 or 5), which wins over this one."""

WORST_FIRST = (70, 7, 1, 6, 4, 5, 2, 3, 8, 0)
"""Which exit code stands for several: nothing serves, something serves that breaks its promise, an upgrade was undone,
something was refused, nothing is known, something differs, all is well."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a host's word is not "holds", as every error of the project: a code, and what to do."""

    code: str
    message: str
    where: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True)
class HostResult:
    """One host. ``endpoints`` are what its own archonctl said of each: the values of ``archonctl.apply/1``,
    ``archonctl.rollback/1``, ``archonctl.verify/1``, ``archonctl.status/1`` or ``archonctl.drift/1``.

    ``touched`` is True if a change was begun there. ``seconds`` counts from its first task to its last.
    ``facts`` is when its cards and RAM were gathered (Unix time in seconds); None: never.
    """

    host: str
    word: HostWord
    exit_code: int
    fault: Fault | None = None
    touched: bool = False
    changed: bool = False
    seconds: float = 0.0
    endpoints: tuple[Mapping[str, Any], ...] = ()
    facts_at: float | None = None
    busy_with: str = ""
    """Who has the endpoint, where that is known: ``pid 4711, alice@deploy``."""


@dataclass(frozen=True, slots=True)
class FleetResult:
    """The hosts by name. ``stopped_at`` is the host that ended a rollout; ``signal`` the one that did, 0 for none."""

    action: Action
    hosts: tuple[HostResult, ...]
    check: bool = False
    stopped_at: str = ""
    signal: int = 0
    operator: str = ""
    began_at: float = 0.0
    seconds: float = 0.0
    remarks: tuple[str, ...] = field(default=())

    @property
    def exit_code(self) -> int:
        """The worst of the hosts' codes; after a signal 128 and its number, unless something is worse than unknown."""
        worst = worst_of(host.exit_code for host in self.hosts)
        return 128 + self.signal if self.signal and worst in (0, 3, 8) else worst


def worst_of(codes: Iterable[int]) -> int:
    """The first of ``WORST_FIRST`` that is there; a code that is not in the table is an internal fault."""
    found = {code if code in WORST_FIRST else 70 for code in codes}
    return next((code for code in WORST_FIRST if code in found), 0)
