"""What is known of one model so far: its facts by quant and engine, and what each candidate needs. Asked once each."""

from __future__ import annotations

from collections import OrderedDict

from archonctl.catalogue.values import CatalogueModel
from archonctl.fit.declare import Candidate
from archonctl.fit.facts import facts_of
from archonctl.fit.need import Need, need_of
from archonctl.model.geometry import ModelFacts

MOST_MODELS = 512
"""Models that are remembered at once: a catalogue and what users add."""


class Needs:
    """The answers of the laws for one model."""

    def __init__(self, model: CatalogueModel) -> None:
        self.model = model
        self._facts: dict[tuple[int, str], ModelFacts] = {}
        self._needs: dict[tuple[int, Candidate], Need] = {}

    def facts(self, quant: int, engine: str) -> ModelFacts:
        """The model in one of its quants, as an engine takes it."""
        key = (quant, "llamacpp" if engine == "llamacpp" else "")
        if key not in self._facts:
            self._facts[key] = facts_of(self.model, self.model.quants[quant], engine)
        return self._facts[key]

    def need(self, quant: int, one: Candidate) -> Need:
        """What a candidate of that quant needs of its fullest card."""
        key = (quant, one)
        if key not in self._needs:
            self._needs[key] = need_of(one, self.facts(quant, one.engine))
        return self._needs[key]


_known: OrderedDict[int, Needs] = OrderedDict()
"""By the identity of the model, which is kept alive in here, so that no other can have it."""


def needs_of(model: CatalogueModel) -> Needs:
    """What is known of the model; the same object for the same model."""
    found = _known.get(id(model))
    if found is None or found.model is not model:
        found = _known[id(model)] = Needs(model)
        if len(_known) > MOST_MODELS:
            _known.popitem(last=False)
    return found
