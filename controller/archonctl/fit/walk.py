"""The walk: quants in the order in which they are preferred, engines in theirs; first the kernel, then the size.

The first that passes both is taken. Nothing counts bytes here: ``need`` asks the laws of the plan, and what is taken
is a declaration that the plan calls "holds".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from archonctl.catalogue.values import CatalogueModel
from archonctl.fit import refusals
from archonctl.fit.cards import Group, Place, place_of
from archonctl.fit.choose import in_ram, on_cards, warnings_of
from archonctl.fit.declare import Candidate, Declared
from archonctl.fit.kv_quants import check_asked
from archonctl.fit.kv_served import KvServed
from archonctl.fit.need import Need
from archonctl.fit.needs import Case
from archonctl.fit.question import Question
from archonctl.fit.values import Ask, Choice, FitResult, FitVerdict, Refusal, RefusalCode
from archonctl.host.profile import Host

PRECEDENCE: tuple[RefusalCode, ...] = (
    "fit-no-device",
    "fit-size",
    "fit-unsatisfiable",
    "fit-unknown",
    "fit-capability",
)
"""Which refusal stands for all: one that got as far as sizes tells more than a missing kernel."""
NEARLY: Mapping[str, float] = {"sglang": 1.01}
"""SGLang's need is rounded up, since its pools are of whole states: what is short by less is left to the plan."""
PLAIN_ASK = Ask()


def verdict(model: CatalogueModel, host: Host, ask: Ask = PLAIN_ASK) -> FitResult:
    """Which quant of ``model`` runs and fits on ``host``, or why none does.

    Quick where the same model is asked of many hosts. Raises UsageError ``kv-quant-unknown``.
    """
    return verdict_at(model, place_of(host), ask)


def verdict_at(model: CatalogueModel, place: Place, ask: Ask = PLAIN_ASK) -> FitResult:
    """``verdict`` for a host that many models are asked of."""
    check_asked(ask.kv_quant)
    return _Walk(Question.of(model, place, ask)).result()


class _Walk:
    """One question under way, and the refusals so far."""

    def __init__(self, ask: Question) -> None:
        self._ask = ask
        self._refusals: list[Refusal] = []

    def result(self) -> FitResult:
        """The answer."""
        chosen = self._choose()
        if chosen is None:
            return self._refused()
        return self._answer("fits", chosen=chosen)

    def _choose(self) -> Choice | None:
        forced, most = self._ask.ask.tp, max((len(group.cards) for group in self._ask.groups), default=0)
        if forced is not None and not 0 < forced <= most:
            message = f"{forced} cards were asked for, the host has {most} alike"
            self._refusals = [refusals.of_case("fit-unsatisfiable", case, message) for case in self._ask.cases()]
            return None
        found = self._fitting()
        if self._ask.ask.prefer == "speed":
            found = iter(sorted(found, key=lambda choice: -_decode(choice)))
        return next(found, None) or next(self._spilling(), None)

    def _fitting(self) -> Iterator[Choice]:
        """Every choice that leaves no experts in RAM, in the order of preference."""
        groups = self._ask.groups
        for case in self._ask.cases():
            if case.kv is None:
                message = f"{case.engine} serves no KV cache of {self._ask.ask.kv_quant}, nor anything near it"
                self._refusals.append(refusals.of_case("fit-capability", case, message))
            elif not groups:
                found = self._kept(in_ram(self._ask, case, self._ask.candidate(case, case.kv, 0, None)))
                yield from (found,) if found else ()
            else:
                tries = (self._on(case, case.kv, group) for group in groups)
                yield from (each for each in (next(filter(None, tries), None),) if each)

    def _on(self, case: Case, kv: KvServed, group: Group) -> Choice | None:
        """The case on as few cards of a group as do. One of an unknown target passes the first gate."""
        target = group.card.target
        if target and (shut := self._ask.closed(case, kv, target)):
            self._refusals.append(refusals.capability(case, *shut, group, self._ask.model.quants))
            return None
        closest: tuple[float, Need, Candidate] | None = None
        for tp in group.splits(self._ask.ask.tp):
            one, need = self._ask.need(case, kv, tp, group)
            if need.problem[0] == "tp-unservable" and self._ask.ask.tp is None:
                continue
            if need.problem[0] or need.unknown:
                code: RefusalCode = "fit-unsatisfiable" if need.problem[0] else "fit-unknown"
                self._refusals.append(refusals.of_case(code, case, need.problem[1] or need.unknown))
                return None
            short = need.must - group.free_bytes(tp)
            if need.must <= group.free[0] * NEARLY.get(case.engine, 1.0):
                found = on_cards(self._ask, case, one, need, group)
                if isinstance(found, Choice):
                    return found
                self._refusals += [found] if short <= 0 else []
            if short > 0 and (closest is None or short < closest[0]):
                closest = short, need, one
        if closest:
            self._refusals.append(self._too_large(case, group, *closest[1:]))
        return None

    def _too_large(self, case: Case, group: Group, need: Need, one: Candidate) -> Refusal:
        declared = Declared(one, self._ask.host, need.kv_bytes, group.cards[: one.tp])
        return refusals.size(case, need, group, self._ask.plain(case, one.kv, one.tp), declared)

    def _kept(self, found: Choice | Refusal) -> Choice | None:
        if isinstance(found, Choice):
            return found
        self._refusals.append(found)
        return None

    def _spilling(self) -> Iterator[Choice]:
        """The last resort: experts of as few layers as do in RAM, and RAM checked as well."""
        if not self._ask.model.geometry.experts or self._ask.host.ram_mib is None:
            return
        for case in self._ask.cases():
            for group in self._ask.groups if case.engine == "llamacpp" and case.kv else ():
                if case.kv and not (group.card.target and self._ask.closed(case, case.kv, group.card.target)):
                    for tp in group.splits(self._ask.ask.tp):
                        if found := self._spilled(case, case.kv, group, tp):
                            yield found

    def _spilled(self, case: Case, kv: KvServed, group: Group, tp: int) -> Choice | None:
        """The fewest whole layers, by halving: more of them never ask more of any card."""
        geometry, free = self._ask.model.geometry, group.free_bytes(tp)
        low, high = 1, len(geometry.layers) - geometry.nextn_layers

        def need(count: int) -> Need:
            return self._ask.need(case, kv, tp, group, count)[1]

        if (most := need(high)).problem[0] or most.unknown or most.must > free:
            return None
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if need(middle).must <= free else (middle + 1, high)
        return self._kept(on_cards(self._ask, case, *self._ask.need(case, kv, tp, group, low), group))

    def _refused(self) -> FitResult:
        if not self._refusals:
            nothing = Refusal("fit-unsatisfiable", "", "", refusals.nothing_to_try(self._ask))
            return self._answer("refused", standing=nothing)
        code = next(code for code in PRECEDENCE if any(each.code == code for each in self._refusals))
        mine = [each for each in self._refusals if each.code == code]
        sized = [each for each in mine if each.wanted_bytes]
        first = min(sized, key=lambda each: each.wanted_bytes - each.free_bytes) if sized else mine[0]
        return self._answer("unknown" if code == "fit-unknown" else "refused", standing=first)

    def _answer(self, word: FitVerdict, chosen: Choice | None = None, standing: Refusal | None = None) -> FitResult:
        ask = self._ask
        return FitResult(
            model=ask.model.name,
            where=ask.place.words,
            seqs=ask.ask.seqs,
            len=ask.len,
            verdict=word,
            chosen=chosen,
            refusals=tuple(self._refusals),
            standing=standing,
            warnings=tuple(warnings_of(chosen, ask)) if chosen else (),
        )


def _decode(choice: Choice) -> float:
    rate = choice.throughput.decode if choice.throughput else None
    return rate.best if rate else 0.0
