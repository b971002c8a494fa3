"""What a refusal says: the numbers, and what would do."""

from __future__ import annotations

from functools import cache, partial
from itertools import islice

from archonctl.catalogue.values import Quant
from archonctl.fit.cards import Group
from archonctl.fit.declare import Declared
from archonctl.fit.kernels import Gate, gate
from archonctl.fit.need import Need
from archonctl.fit.needs import Case
from archonctl.fit.question import Question
from archonctl.fit.values import Refusal, RefusalCode
from archonctl.memory.interval import GIB
from archonctl.plan.values import Plan

_MAKER_WORD = {"nvidia": "compute capability", "amd": "target", "intel": "architecture"}


def capability(case: Case, kind: str, asked: Gate, group: Group, others: tuple[Quant, ...]) -> Refusal:
    """The card has no kernel for the type. ``others`` are the quants of the model, for what would run."""
    words = partial(_capability, case.engine, kind, asked, group, others)
    kernel = asked.missing[0].kernel if asked.missing else _type(kind)
    return Refusal("fit-capability", case.quant.name, case.engine, words, kernel=kernel)


def _type(kind: str) -> str:
    return f"a KV cache of {kind.removeprefix('kv:')}" if kind.startswith("kv:") else kind


def _capability(engine: str, kind: str, asked: Gate, group: Group, others: tuple[Quant, ...]) -> str:
    card, row, what = group.card, next(iter(asked.missing), None), _type(kind)
    word = _MAKER_WORD.get(card.maker, "target")
    if row is None:
        return f"{what} under {engine}: nothing here says which cards run it"
    runs = _would_run(tuple((each.name, each.engines) for each in others), card.target)
    here = f"{card.name} has {word} {card.target}" if card.target else f"{card.name} has none"
    message = f"{what} under {engine} needs the kernel {row.kernel} ({row.needs(card.maker)}); {here}"
    unpacked = next((each for each in asked.missing if each.weight_only and each.covers(card.target)), None)
    if unpacked:
        message += f"; --weight-only takes {unpacked.kernel}"
    if runs:
        message += f"; there run {runs}"
    return message


@cache
def _would_run(quants: tuple[tuple[str, tuple[str, ...]], ...], target: str) -> str:
    """Some quants that run on the target as they are, in words."""
    runs = (f"{name} ({engine})" for name, engines in quants for engine in engines if gate(engine, name, target).open)
    return ", ".join(islice(runs, 4))


def size(case: Case, need: Need, group: Group, plain_bytes: int, declared: Declared) -> Refusal:
    """The smallest estimate, and what the tightest of so many cards has."""
    free = group.free_bytes(declared.candidate.tp)
    words = partial(_size, case, need, group, plain_bytes, declared.candidate.tp)
    return Refusal("fit-size", case.quant.name, case.engine, words, "", round(need.must), plain_bytes, free, declared)


def _size(case: Case, need: Need, group: Group, plain_bytes: int, tp: int) -> str:
    quant, engine = case.quant, case.engine
    free, cards = group.free_bytes(tp), f"{tp} cards" if tp > 1 else "a card"
    rest = max(0.0, need.est.best - need.weights_bytes - need.kv_bytes)
    return (
        f"{quant.name} under {engine} wants {cards} of {_gib(need.must)} (weights {_gib(need.weights_bytes)}, cache "
        f"{_gib(need.kv_bytes)}, rest {_gib(rest)}; {_gib(need.est.low)} to {_gib(need.est.high)}), "
        f"{group.card.name} has {_gib(free)}; plain estimate {_gib(plain_bytes)}"
    )


def other(code: RefusalCode, quant: Quant, engine: str, message: str) -> Refusal:
    """A refusal in words of its own."""
    return Refusal(code, quant.name, engine, message)


def of_case(code: RefusalCode, case: Case, message: str) -> Refusal:
    """The same of a case."""
    return other(code, case.quant, case.engine, message)


def code_of(plan: Plan) -> RefusalCode:
    """What a plan in RAM that does not hold is refused as: no device, or unknown."""
    return "fit-unknown" if plan.verdict == "unknown" else "fit-no-device"


def nothing_to_try(ask: Question) -> str:
    """What was asked for, where the model has no such quant, and what it has."""
    asked = ", ".join(filter(None, (*ask.ask.quants, ask.ask.engine))) or "any engine"
    has = ", ".join(dict.fromkeys(f"{each.name} ({'/'.join(each.engines)})" for each in ask.model.quants))
    return f"{ask.model.name} has no quant for {asked}; it has {has or 'none'}"


def _gib(bytes_: float) -> str:
    return f"{bytes_ / GIB:.2f} GiB"
