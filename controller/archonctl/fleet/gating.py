"""``fleet gate``: every host's endpoints as they would start there, and what is wrong with them together.

Each declaration is judged by ``gate.endpoint`` with the profile of its host; equal declarations on equal hosts once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from archonctl.deployment.load import load_endpoint
from archonctl.errors import ArchonError
from archonctl.findings import Finding, refuses
from archonctl.fleet.asked import known_hosts
from archonctl.fleet.given import cards_finding, settings
from archonctl.fleet.host_variables import Assigned
from archonctl.fleet.inventory import Inventory
from archonctl.fleet.knowledge import Hardware, Knowledge, Known, Read
from archonctl.fleet.together import Judge
from archonctl.gate.endpoint import check_endpoint
from archonctl.gate.values import in_order
from archonctl.gate.where import of_error

GateWord = Literal["clean", "refused", "invalid", "unread"]


@dataclass(frozen=True, slots=True)
class HostGate:
    """One host. ``unread``: its endpoints were judged, without anything known of its cards and RAM."""

    known: Known
    findings: tuple[Finding, ...]
    strict: bool = False

    @property
    def word(self) -> GateWord:
        """What a start there would come to."""
        problem = self.known.problem
        if refuses(self.findings) or (self.strict and any(one.severity == "warning" for one in self.findings)):
            return "refused"
        if problem is not None and problem.code != "fleet-host-unread":
            return "invalid"
        return "unread" if problem is not None and self.known.host.endpoints else "clean"


@dataclass(frozen=True, slots=True)
class FleetGate:
    """Every host, in order."""

    hosts: tuple[HostGate, ...]
    strict: bool = False

    @property
    def word(self) -> GateWord:
        """Refused before invalid before unread."""
        words = {host.word for host in self.hosts}
        order: tuple[GateWord, ...] = ("refused", "invalid", "unread")
        return next((word for word in order if word in words), "clean")


def gate_fleet(inventory: Inventory, facts: Path, environ: Mapping[str, str], *, strict: bool = False) -> FleetGate:
    """Judge every host. What is wrong with one hides no other; nothing is raised for it."""
    gate = _Gate(environ)
    known = known_hosts(inventory, facts, gate.knowledge)
    return FleetGate(tuple(HostGate(one, gate.host(one), strict) for one in known.values()), strict)


class _Gate:
    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = {name: text for name, text in environ.items() if not name.startswith("ARCHON__")}
        self.knowledge = Knowledge(environ)
        self._judge = Judge(self.knowledge)
        self._found: dict[tuple[object, ...], tuple[str, tuple[Finding, ...]]] = {}
        self._hosts: dict[tuple[object, ...], tuple[Finding, ...]] = {}

    def host(self, known: Known) -> tuple[Finding, ...]:
        """The findings of one host; those of equal hosts are the same value."""
        key = (known.hardware, known.host.endpoints)
        if key not in self._hosts:
            found = [one for assigned in known.host.endpoints for one in self._endpoint(assigned, known.hardware)]
            if known.hardware is not None and len(known.host.endpoints) > 1:
                found += self._judge.host(known.hardware, known.host.endpoints).findings
            self._hosts[key] = in_order(found)
        return self._hosts[key]

    def _endpoint(self, assigned: Assigned, hardware: Hardware | None) -> tuple[Finding, ...]:
        shown = str(assigned.declaration)
        try:
            read = self.knowledge.read(assigned.declaration)
        except ArchonError as err:
            return tuple(of_error(err, shown))
        key = (read.text, read.key, hardware, assigned.cards, assigned.env)
        if key not in self._found:
            self._found[key] = (shown, self._checked(assigned, hardware, read))
        first, found = self._found[key]
        return found if first == shown else tuple(_elsewhere(one, first, shown) for one in found)

    def _checked(self, assigned: Assigned, hardware: Hardware | None, read: Read) -> tuple[Finding, ...]:
        """With the host's own profile in place of what the declaration names, and the cards that it is given."""
        loaded, shown = read.loaded, str(assigned.declaration)
        if hardware is not None:
            flags: dict[str, object] = {"host.profile": str(hardware.profile), "host.detect": False}
            flags |= settings(assigned)
            try:
                loaded = load_endpoint(assigned.declaration, flags, self._environ)
            except ArchonError as err:
                return tuple(of_error(err, shown))
        found = check_endpoint(loaded, shown=shown)
        if hardware is not None:
            seen = cards_finding(assigned, loaded.endpoint, hardware, read, self.knowledge)
            found = (*found, *([seen] if seen else []))
        return found


def _elsewhere(finding: Finding, first: str, shown: str) -> Finding:
    """The same finding in another file of the same text."""
    if finding.place.path != first:
        return finding
    edit = replace(finding.edit, path=shown) if finding.edit and finding.edit.path == first else finding.edit
    return replace(finding, place=replace(finding.place, path=shown), edit=edit)
