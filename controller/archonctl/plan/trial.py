"""One declaration under many changes: every answer of a solver or a sweep is judged as a plan is."""

from __future__ import annotations

from dataclasses import dataclass

from archonctl.deployment.schema import Endpoint
from archonctl.engines import adapter
from archonctl.engines.change import Change, Variable, changed
from archonctl.errors import DeclarationError
from archonctl.host.profile import Host
from archonctl.host.visible import visible_host
from archonctl.model.geometry import ModelFacts
from archonctl.plan.judge import judged_plan
from archonctl.plan.values import Plan


@dataclass(frozen=True)
class Trial:
    """A declaration, a host and a model, and the question what becomes of the contract under a change."""

    name: str
    endpoint: Endpoint
    host: Host
    model: ModelFacts | None

    def plan(self, change: Change, *, detail: bool = False) -> Plan:
        """The plan of the changed declaration. Raises DeclarationError where that contradicts itself."""
        return judged_plan(self.name, self.endpoint_with(change), self.host, self.model, detail=detail)

    def endpoint_with(self, change: Change) -> Endpoint:
        """The changed declaration."""
        return changed(self.endpoint, change)

    def holds(self, change: Change) -> bool:
        """True if the changed contract would hold; a change that contradicts itself does not."""
        try:
            return self.plan(change).verdict == "holds"
        except DeclarationError:
            return False

    def why_not(self, change: Change) -> tuple[str, ...]:
        """Every reason why the changed contract does not hold; empty if it does."""
        try:
            plan = self.plan(change)
        except DeclarationError as err:
            return (err.message,)
        nothing = plan.verdict == "unknown" and plan.forecast.kv_tokens is None
        return (plan.forecast.method,) if nothing else plan.reasons

    def variables(self) -> dict[str, Variable]:
        """What can be left free, by name."""
        seen = visible_host(self.host, self.endpoint.engine.env)
        return dict(adapter(self.endpoint.engine.kind).variables(self.endpoint, seen))
