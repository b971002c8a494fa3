"""One unit together with what it starts."""

from __future__ import annotations

from dataclasses import dataclass

from archonctl.findings import Finding, Severity
from archonctl.foreign.containers import Container
from archonctl.foreign.launch import Launch
from archonctl.gate.unit.unit import UnitFile


@dataclass(frozen=True, slots=True)
class UnitUse:
    """A unit with its drop-ins, and the engine that its ``ExecStart=`` starts.

    ``model_bytes`` is the size of the artefact where it is known.
    """

    unit: UnitFile
    launch: Launch
    model_bytes: int | None = None

    @property
    def container(self) -> Container | None:
        """The container around the engine."""
        return self.launch.container

    @property
    def quadlet(self) -> bool:
        """True for a Quadlet ``.container`` file."""
        return self.unit.has("Container")

    def text(self, key: str, default: str = "") -> str:
        """The value in force of a key of ``[Service]``."""
        found = self.unit.last("Service", key)
        return found.text if found else default

    def finding(self, code: str, severity: Severity, message: str, key: str, fix: str) -> Finding:
        """A finding at a key of ``[Service]``, or at the section where the key is missing."""
        return Finding(code, severity, message, self.unit.where("Service", key), fix)
