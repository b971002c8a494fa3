"""What is known of one model so far: its facts by quant and engine, and what each candidate needs. Asked once each."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from archonctl.catalogue.values import CatalogueModel, Quant
from archonctl.fit.declare import Candidate
from archonctl.fit.facts import facts_of
from archonctl.fit.kv_served import KvServed
from archonctl.fit.need import Need, need_of
from archonctl.fit.plain import Plain
from archonctl.fit.speed import active_bytes
from archonctl.model.geometry import ModelFacts

Key = tuple[int, str, int, int, str, str, int, str, int]
"""Number of the quant, engine, conversations, tokens, cache as asked and served, cards, their maker, expert layers."""
MOST_MODELS = 512
"""Models that are remembered at once: a catalogue and what users add."""


@dataclass(frozen=True, slots=True)
class Case:
    """One quant under one engine, with the number of the quant in the model's list; ``kv`` None: nothing like it."""

    number: int
    quant: Quant
    engine: str
    kv: KvServed | None


class Needs:
    """The answers of the laws for one model."""

    def __init__(self, model: CatalogueModel) -> None:
        self.model = model
        self.cases: dict[tuple[tuple[str, ...], str, str], tuple[Case, ...]] = {}
        """By quants, engine and cache asked for."""
        self._facts: dict[tuple[int, str], ModelFacts] = {}
        self._needs: dict[Key, tuple[Candidate, Need]] = {}
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

    def need(self, key: Key, candidate: Callable[[], Candidate]) -> tuple[Candidate, Need]:
        """A candidate and what it needs of its fullest card; ``key`` says all that distinguishes it."""
        found = self._needs.get(key)
        if found is None:
            one = candidate()
            found = self._needs[key] = one, need_of(one, self.facts(key[0], one.engine))
        return found


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
