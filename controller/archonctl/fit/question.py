"""One question: a model, a machine and what is asked, with the cases that are to be tried."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from archonctl.catalogue.values import CatalogueModel, Quant
from archonctl.fit.cards import Group, groups
from archonctl.fit.declare import Candidate
from archonctl.fit.kernels import Gate, gate
from archonctl.fit.kv_quants import served
from archonctl.fit.needs import Needs, needs_of
from archonctl.fit.values import DEFAULT_LEN, Ask, KvServed
from archonctl.host.profile import Host
from archonctl.model.geometry import ModelFacts


@dataclass(frozen=True, slots=True)
class Case:
    """One quant under one engine, with the number of the quant in the model's list; ``kv`` None: nothing like it."""

    number: int
    quant: Quant
    engine: str
    kv: KvServed | None


@dataclass(frozen=True, slots=True)
class Question:
    """``len`` is in tokens, settled; ``groups`` are the cards that can share the model."""

    model: CatalogueModel
    host: Host
    ask: Ask
    len: int
    groups: tuple[Group, ...]
    needs: Needs

    @classmethod
    def of(cls, model: CatalogueModel, host: Host, ask: Ask) -> Question:
        """The question with what is not asked filled in."""
        length = ask.len or min(DEFAULT_LEN, model.trained_context or DEFAULT_LEN)
        return cls(model, host, ask, length, groups(host), needs_of(model))

    def cases(self) -> Iterator[Case]:
        """Quants in the order in which they are preferred, engines in theirs."""
        wanted = {name.upper() for name in self.ask.quants}
        for number, quant in enumerate(self.model.quants):
            if wanted and quant.name.upper() not in wanted:
                continue
            for engine in quant.engines:
                if self.ask.engine in ("", engine):
                    yield Case(number, quant, engine, served(engine, self.ask.kv_quant))

    def facts(self, case: Case) -> ModelFacts:
        """The model as the case's engine takes it."""
        return self.needs.facts(case.number, case.engine)

    def candidate(self, case: Case, kv: KvServed, tp: int, group: Group | None, expert_layers: int = 0) -> Candidate:
        """The case over ``tp`` cards of a group; 0 and None are RAM."""
        maker = group.card.maker if group else ""
        path = self.facts(case).path
        return Candidate(path, case.engine, self.ask.seqs, self.len, kv, tp, maker, expert_layers)

    def closed(self, case: Case, kv: KvServed, target: str) -> tuple[str, Gate] | None:
        """The first type, of weights or cache, that the target has no kernel for; None where all is open."""
        for kind in (case.quant.name, *(f"kv:{side}" for side in kv.dtype.split("/"))):
            answer = gate(case.engine, kind, target, self.ask.weight_only)
            if not answer.open:
                return kind, answer
        return None

    def plain(self, case: Case, kv: KvServed, tp: int) -> int:
        """The plain estimate of one card."""
        return self.needs.plain(case.number, case.engine).bytes(self.ask.seqs * self.len, kv.dtype, tp)
