"""The plan as a value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from archonctl.deployment.schema import Contract
from archonctl.engines.base import CardShare, Forecast
from archonctl.memory.demand import Fit

PlanVerdict = Literal["holds", "short", "unknown"]


@dataclass(frozen=True, slots=True)
class Plan:
    """One declaration judged before anything is started."""

    endpoint: str
    engine: str
    engine_version: str
    contract: Contract
    verdict: PlanVerdict
    reasons: tuple[str, ...]
    """Why the verdict is not "holds"; empty when it is."""
    forecast: Forecast
    fits: tuple[Fit, ...]
    notes: tuple[str, ...]

    @property
    def cards(self) -> tuple[CardShare, ...]:
        """The split of each card."""
        return self.forecast.cards
