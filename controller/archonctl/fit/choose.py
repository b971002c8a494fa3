"""A case that fits, as a choice with everything that is to be told of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from archonctl.findings import Finding
from archonctl.fit import refusals
from archonctl.fit.cards import Group, host_with
from archonctl.fit.declare import Candidate, Declared
from archonctl.fit.kernels import gate
from archonctl.fit.kv_quants import warning
from archonctl.fit.need import Need, plan_of
from archonctl.fit.needs import Case
from archonctl.fit.question import Question
from archonctl.fit.speed import crawl_tokens_s, throughput
from archonctl.fit.values import Choice, Refusal, Split
from archonctl.memory.interval import GIB, Interval
from archonctl.plan.values import Plan


def on_cards(ask: Question, case: Case, one: Candidate, need: Need, group: Group) -> Choice | Refusal:
    """The choice. The plan on the machine itself has the last word where RAM is known, and where the tightest card has
    less than the fullest one holds: they need not be the same."""
    cards, facts = group.cards[: one.tp], ask.facts(case)
    declared, free = Declared(one, ask.host, need.kv_bytes, cards), group.free_bytes(one.tp)
    uneven = need.must > free
    if ask.host.ram_mib is not None or uneven:
        plan = plan_of(one, host_with(ask.host, cards), facts, need)
        if plan.verdict != "holds":
            message = f"{case.quant.name} under {case.engine}: {'; '.join(plan.reasons)}"
            short = refusals.of_case("fit-size", case, message)
            return replace(short, wanted_bytes=round(need.must), free_bytes=free, declared=declared)
        if uneven:
            need, free = _tightest(plan, need)
    split: Split = "one" if one.tp == 1 else "layer" if case.engine == "llamacpp" else "tensor"
    cache = need.kv_bytes * one.tp / one.seqs
    card = None if one.expert_layers else group.card
    return Choice(
        quant=case.quant.name,
        engine=case.engine,
        tp=one.tp,
        split="experts-in-ram" if one.expert_layers else split,
        kv=one.kv,
        weights_bytes=need.weights_bytes,
        kv_bytes=need.kv_bytes,
        est=need.est,
        plain_bytes=ask.plain(case, one.kv, one.tp),
        free_bytes=free,
        declared=declared,
        host_bytes=need.host_bytes,
        expert_layers=one.expert_layers,
        throughput=throughput(ask.model, ask.needs.active(case.number, case.engine), cache, card, one.tp, case.engine),
    )


def _tightest(plan: Plan, need: Need) -> tuple[Need, int]:
    """The need of the card that has least to spare, and what it has."""
    card = min((f for f in plan.fits if f.scope == "device"), key=lambda f: f.budget_bytes - f.want_bytes)
    low, high = card.want_low_bytes or card.want_bytes, card.want_high_bytes or card.want_bytes
    weights, cache = (card.by_class.get(name, 0) for name in ("weights", "kv_cache"))
    est = Interval(low, card.want_bytes, high, "assumed")
    return replace(need, est=est, weights_bytes=weights, kv_bytes=cache), card.budget_bytes


def in_ram(ask: Question, case: Case, one: Candidate) -> Choice | Refusal:
    """The case without any card: only engines that compute on the CPU, and only where RAM is known."""
    name = f"{case.quant.name} under {case.engine}"
    if not gate(case.engine, case.quant.name, "").open:
        return refusals.of_case("fit-no-device", case, f"no device, and {name} needs one")
    if ask.host.ram_mib is None:
        return refusals.of_case("fit-no-device", case, "no device, and RAM is not known")
    plan = plan_of(one, ask.host, ask.facts(case), Need(Interval.exact(0), 0.0, 0, 0))
    ram, declared = next(fit for fit in plan.fits if fit.scope == "host"), Declared(one, ask.host)
    if plan.verdict != "holds":
        message = f"no device; {name} in RAM: {'; '.join(plan.reasons)}"
        code = refusals.code_of(plan)
        refusal = refusals.of_case(code, case, message)
        return replace(refusal, wanted_bytes=ram.want_bytes, free_bytes=max(0, ram.budget_bytes), declared=declared)
    cache = ram.by_class.get("kv_cache", 0)
    low, high = ram.want_low_bytes or ram.want_bytes, ram.want_high_bytes or ram.want_bytes
    return Choice(
        quant=case.quant.name,
        engine=case.engine,
        tp=0,
        split="ram",
        kv=one.kv,
        weights_bytes=ram.by_class.get("weights", 0),
        kv_bytes=cache,
        est=Interval(low, ram.want_bytes, high, "assumed"),
        plain_bytes=ask.plain(case, one.kv, 1),
        free_bytes=ram.budget_bytes,
        declared=declared,
        host_bytes=ram.want_bytes,
        throughput=throughput(
            ask.model, ask.needs.active(case.number, case.engine), cache / one.seqs, None, 1, case.engine
        ),
    )


def warnings_of(choice: Choice, ask: Question) -> Iterator[Finding]:
    """What a person should know of a choice that fits."""
    if substituted := warning(choice.engine, choice.kv):
        yield substituted
    rate = choice.throughput.decode if choice.throughput else None
    if rate and rate.best < crawl_tokens_s():
        message = f"it fits but will crawl: about {rate.best:.1f} tokens a second ({rate.low:.1f} to {rate.high:.1f})"
        yield Finding("fit-crawls", "warning", message, fix="--prefer speed, a smaller quant or a faster card")
    elif choice.split in ("ram", "experts-in-ram"):
        message = f"{choice.host_bytes / GIB:.1f} GiB lie in RAM, whose bandwidth is not known: it may crawl"
        yield Finding("fit-crawls", "warning", message, fix="a card that holds all of it")
    if choice.tp and choice.free_bytes < choice.est.high:
        message = (
            f"it is tight: {choice.est.low / GIB:.2f} to {choice.est.high / GIB:.2f} GiB of a card, "
            f"{choice.free_bytes / GIB:.2f} GiB are there"
        )
        yield Finding("fit-tight", "warning", message, fix="a shorter context, or a smaller quant")
    if any(not group.card.target for group in ask.groups):
        message = "the target of a card is not known, so its kernels were not checked"
        yield Finding("fit-target-unknown", "warning", message, fix="state target in the host profile")
