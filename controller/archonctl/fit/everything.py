"""Many models on many machines."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from archonctl.catalogue.values import CatalogueModel
from archonctl.fit.cards import Place, place_of
from archonctl.fit.values import Ask, FitResult
from archonctl.fit.walk import verdict_at
from archonctl.host.profile import Host


@dataclass(frozen=True, slots=True)
class OnHost:
    """All models on one machine, in the order of the catalogue; ``where`` is the machine in words."""

    host: Host
    where: str
    results: tuple[FitResult, ...]


def verdicts(models: Sequence[CatalogueModel], hosts: Sequence[Host], ask: Ask) -> tuple[OnHost, ...]:
    """The answer for each machine and model. Raises as ``verdict``."""
    with _uncollected():
        return tuple(_on(place_of(host), models, ask) for host in hosts)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Without the collector of cycles: of many thousand values none is one, and its rounds cost time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _on(place: Place, models: Sequence[CatalogueModel], ask: Ask) -> OnHost:
    return OnHost(place.host, place.words, tuple(_brief(verdict_at(model, place, ask)) for model in models))


def _brief(result: FitResult) -> FitResult:
    """Without what was passed over where something fits: nobody reads that of thousands."""
    return replace(result, refusals=()) if result.chosen else result
