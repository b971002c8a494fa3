"""Many models on many machines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from archonctl.catalogue.values import CatalogueModel
from archonctl.fit.cards import where
from archonctl.fit.values import Ask, FitResult
from archonctl.fit.walk import verdict
from archonctl.host.profile import Host


@dataclass(frozen=True, slots=True)
class OnHost:
    """All models on one machine, in the order of the catalogue; ``where`` is the machine in words."""

    host: Host
    where: str
    results: tuple[FitResult, ...]


def verdicts(models: Sequence[CatalogueModel], hosts: Sequence[Host], ask: Ask) -> tuple[OnHost, ...]:
    """The answer for each machine and model. Raises as ``verdict``."""
    return tuple(OnHost(host, where(host), tuple(verdict(model, host, ask) for model in models)) for host in hosts)
