"""An engine's own planner as a second opinion: what to ask it, and its figures beside the plan's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from archonctl.deployment.schema import Endpoint
from archonctl.host.profile import Host
from archonctl.memory.interval import Interval
from archonctl.model.geometry import ModelFacts


@dataclass(frozen=True, slots=True)
class Question:
    """A command that answers on stdout. ``argv`` begins with the program; ``unaskable`` says why there is none."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    unaskable: str = ""
    ready: str = ""
    """What to do where the program is not there."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of the oracle, and the plan's; ``planned`` is None where the plan has none.

    ``exact`` is False for what the plan only estimates: then the oracle must lie within its ends.
    """

    what: str
    unit: str
    oracle: float
    planned: Interval | None
    exact: bool = True

    @property
    def agrees(self) -> bool | None:
        """None where there is nothing to compare."""
        return None if self.planned is None else self.planned.low <= self.oracle <= self.planned.high


class Oracle(Protocol):
    """The planner of one engine."""

    name: str

    def question(self, endpoint: Endpoint, host: Host, model: ModelFacts | None) -> Question:
        """What to run. Raises DeclarationError as a forecast does."""
        ...

    def read(self, text: str, endpoint: Endpoint, host: Host, model: ModelFacts | None) -> tuple[Figure, ...]:
        """Its answer beside the plan's figures; empty where the text is no answer."""
        ...
