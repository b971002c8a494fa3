"""Questions that the tests of fit ask: public models on cards of any size."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from archonctl.catalogue import Catalogue, CatalogueModel, load_catalogue
from archonctl.fit.values import Ask, FitResult
from archonctl.fit.ways import fit
from archonctl.host.profile import Host

Question = Callable[..., FitResult]


@pytest.fixture(scope="session")
def catalogue() -> Catalogue:
    return load_catalogue()


@pytest.fixture(scope="session")
def ask(catalogue: Catalogue) -> Question:
    """``ask(model, host, **what)``: the whole answer, with ways out."""

    def run(model: str | CatalogueModel, host: Host, **what: object) -> FitResult:
        found = catalogue.find(model) if isinstance(model, str) else model
        return fit(found, host, Ask(**what))  # type: ignore[arg-type]

    return run
