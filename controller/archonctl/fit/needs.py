"""What is known of one model so far: its facts by quant and engine, and what each candidate needs. Asked once each."""

from __future__ import annotations

from collections import OrderedDict

from archonctl.catalogue.values import CatalogueModel
from archonctl.fit.declare import Candidate
from archonctl.fit.facts import facts_of
from archonctl.fit.need import Need, need_of
from archonctl.fit.plain import Plain
from archonctl.fit.speed import active_bytes
from archonctl.model.geometry import ModelFacts

MOST_MODELS = 512
"""Models that are remembered at once: a catalogue and what users add."""


class Needs:
    """The answers of the laws for one model."""

    def __init__(self, model: CatalogueModel) -> None:
        self.model = model
        self._facts: dict[tuple[int, str], ModelFacts] = {}
        self._needs: dict[tuple[int, Candidate], Need] = {}
        self._active: dict[tuple[int, str], float] = {}
        self._plain: dict[tuple[int, str], Plain] = {}

    def facts(self, quant: int, engine: str) -> ModelFacts:
        """The model in one of its quants, as an engine takes it."""
        key = (quant, "llamacpp" if engine == "llamacpp" else "")
        if key not in self._facts:
            self._facts[key] = facts_of(self.model, self.model.quants[quant], engine)
        return self._facts[key]

    def active(self, quant: int, engine: str) -> float:
        """Bytes of weights read for a token."""
        if (quant, engine) not in self._active:
            self._active[quant, engine] = active_bytes(self.model, self.facts(quant, engine))
        return self._active[quant, engine]

    def plain(self, quant: int, engine: str) -> Plain:
        """What the plain estimate takes of it."""
        if (quant, engine) not in self._plain:
            self._plain[quant, engine] = Plain.of(self.facts(quant, engine))
        return self._plain[quant, engine]

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
