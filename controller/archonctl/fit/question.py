"""One question: a model, a machine and what is asked, with the cases that are to be tried."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from archonctl.catalogue.values import CatalogueModel
from archonctl.fit.cards import Group, Place
from archonctl.fit.declare import Candidate
from archonctl.fit.kernels import Gate, gate
from archonctl.fit.kv_quants import served
from archonctl.fit.kv_served import KvServed
from archonctl.fit.need import Need
from archonctl.fit.needs import Case, Needs, needs_of
from archonctl.fit.values import DEFAULT_LEN, Ask
from archonctl.host.profile import Host
from archonctl.model.geometry import ModelFacts


@dataclass(frozen=True, slots=True)
class Question:
    """``len`` is in tokens, settled."""

    model: CatalogueModel
    place: Place
    ask: Ask
    len: int
    needs: Needs

    @property
    def host(self) -> Host:
        """The machine."""
        return self.place.host

    @property
    def groups(self) -> tuple[Group, ...]:
        """The cards that can share the model."""
        return self.place.groups

    @classmethod
    def of(cls, model: CatalogueModel, place: Place, ask: Ask) -> Question:
        """The question with what is not asked filled in."""
        length = ask.len or min(DEFAULT_LEN, model.trained_context or DEFAULT_LEN)
        return cls(model, place, ask, length, needs_of(model))

    def cases(self) -> tuple[Case, ...]:
        """Quants in the order in which they are preferred, engines in theirs."""
        key = self.ask.quants, self.ask.engine, self.ask.kv_quant
        found = self.needs.cases.get(key)
        if found is None:
            found = self.needs.cases[key] = tuple(_cases(self.model, self.ask))
        return found

    def facts(self, case: Case) -> ModelFacts:
        """The model as the case's engine takes it."""
        return self.needs.facts(case.number, case.engine)

    def candidate(self, case: Case, kv: KvServed, tp: int, group: Group | None, expert_layers: int = 0) -> Candidate:
        """The case over ``tp`` cards of a group; 0 and None are RAM."""
        maker = group.card.maker if group else ""
        path = self.facts(case).path
        return Candidate(path, case.engine, self.ask.seqs, self.len, kv, tp, maker, expert_layers)

    def need(self, case: Case, kv: KvServed, tp: int, group: Group, expert_layers: int = 0) -> tuple[Candidate, Need]:
        """The case as a candidate, and what it needs of its fullest card."""
        maker = group.cards[0].maker
        key = (case.number, case.engine, self.ask.seqs, self.len, kv.asked, kv.dtype, tp, maker, expert_layers)
        return self.needs.need(key, lambda: self.candidate(case, kv, tp, group, expert_layers))

    def closed(self, case: Case, kv: KvServed, target: str) -> tuple[str, Gate] | None:
        """The first type, of weights or cache, that the target has no kernel for; None where all is open."""
        return _closed(case.engine, case.quant.name, kv.dtype, target, self.ask.weight_only)

    def plain(self, case: Case, kv: KvServed, tp: int) -> int:
        """The plain estimate of one card."""
        return self.needs.plain(case.number, case.engine).bytes(self.ask.seqs * self.len, kv.dtype, tp)


def _cases(model: CatalogueModel, ask: Ask) -> Iterator[Case]:
    wanted = {name.upper() for name in ask.quants}
    for number, quant in enumerate(model.quants):
        if wanted and quant.name.upper() not in wanted:
            continue
        for engine in quant.engines:
            if ask.engine in ("", engine):
                yield Case(number, quant, engine, served(engine, ask.kv_quant))


@cache
def _closed(engine: str, quant: str, dtype: str, target: str, weight_only: bool) -> tuple[str, Gate] | None:
    for kind in (quant, *(f"kv:{side}" for side in dtype.split("/"))):
        answer = gate(engine, kind, target, weight_only)
        if not answer.open:
            return kind, answer
    return None
