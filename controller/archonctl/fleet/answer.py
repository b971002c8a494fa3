"""What ``fleet plan`` answers, as values."""

from __future__ import annotations

from dataclasses import dataclass

from archonctl.errors import ArchonError
from archonctl.fleet.host_variables import Assigned
from archonctl.fleet.knowledge import Known
from archonctl.fleet.together import HostVerdict, Together


@dataclass(frozen=True, slots=True)
class HostRow:
    """One host: what is to lie on it, judged. ``together`` is None where nothing is known of the host."""

    known: Known
    assigned: tuple[Assigned, ...]
    together: Together | None
    came: tuple[str, ...] = ()
    """Endpoints that the inventory does not have there yet."""
    went: tuple[str, ...] = ()
    survived: bool | None = None
    """Whether the others take what lies here, should it be lost; None: not asked, or nothing lies here."""

    @property
    def problem(self) -> ArchonError | None:
        """Why it is not judged."""
        return self.known.problem

    @property
    def verdict(self) -> HostVerdict:
        """Of the host; one of which nothing is known is unknown, one whose variables are wrong invalid."""
        if self.together is not None:
            return self.together.verdict
        unread = self.problem is None or self.problem.code == "fleet-host-unread"
        return "unknown" if unread else "invalid"


@dataclass(frozen=True, slots=True)
class Way:
    """One change that was tried and places what lies nowhere."""

    text: str
    costs: str = ""


@dataclass(frozen=True, slots=True)
class EndpointRow:
    """One endpoint over the fleet. ``wanted`` is None where no fleet file says it; ``before`` is before a loss."""

    name: str
    wanted: int | None
    placed: int
    hosts: tuple[str, ...]
    nodes: int = 1
    seqs: int | None = None
    len: int | None = None
    before: int | None = None
    reason: str = ""
    """Why replicas lie nowhere, or not where they are pinned."""
    ways: tuple[Way, ...] = ()
    """What would place them, the smallest first."""
    problem: ArchonError | None = None
    """Why its declaration cannot be read."""


@dataclass(frozen=True, slots=True)
class Move:
    """An endpoint from one host to another; "" where it only starts or only stops."""

    endpoint: str
    source: str
    target: str


@dataclass(frozen=True, slots=True)
class LossRow:
    """Hosts of which any one may be lost with the same consequence; ``unplaced`` replicas by endpoint."""

    hosts: tuple[str, ...]
    endpoints: tuple[str, ...]
    unplaced: tuple[tuple[str, int], ...]
    proven: bool


@dataclass(frozen=True, slots=True)
class FleetPlan:
    """The whole answer. ``proven`` is None where nothing was placed (the inventory says where everything lies)."""

    hosts: tuple[HostRow, ...]
    endpoints: tuple[EndpointRow, ...]
    moves: tuple[Move, ...] = ()
    proven: bool | None = None
    why: str = ""
    unplaced_proven: bool = True
    """False if another placement may leave less unplaced."""
    spare: int = 0
    losses: tuple[LossRow, ...] = ()
    """Losses that are not survived, where ``spare`` is asked for."""
    spare_proven: bool = True
    spare_ways: tuple[Way, ...] = ()
    without: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def verdict(self) -> HostVerdict:
        """Short before invalid before unknown: what is proven first."""
        words = {row.verdict for row in self.hosts if row.assigned or row.verdict == "invalid"}
        if any(row.reason for row in self.endpoints):
            lacking = any(row.placed < (row.wanted or 0) for row in self.endpoints)
            words.add("unknown" if lacking and not self.unplaced_proven else "short")
        if any(row.problem is not None for row in self.endpoints):
            words.add("invalid")
        if self.losses:
            words.add("short" if self.spare_proven and all(loss.proven for loss in self.losses) else "unknown")
        return next((word for word in ("short", "invalid", "unknown") if word in words), "holds")
