"""Which change gives back a class of memory that ran out, and how little of it is enough, by the plan's own law."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Literal

from archonctl.deployment.schema import Endpoint, KnobValue
from archonctl.engines.change import Change, mirrored
from archonctl.engines.knob_values import spelled
from archonctl.errors import DeclarationError
from archonctl.memory.demand import MemoryClass, Scope
from archonctl.memory.interval import MIB
from archonctl.plan.price import kv_price, pool_bytes, ranks
from archonctl.plan.trial import Trial
from archonctl.plan.values import Plan

Effect = Literal["space", "pool", "need", "offload"]
SHARE = 0.05
"""Of what the class holds: what is sought where nobody says how much was missing. A choice, said with the answer."""
_MIRRORS = {"contract.seqs": ("max-num-seqs", "parallel"), "contract.len": ("max-model-len", "ctx-size")}


@dataclass(frozen=True, slots=True)
class Question:
    """What ran out. ``short_bytes`` None: nobody says how much was missing; ``card`` None: nor on which card.

    ``pool``: the engine's KV pool (or the host pool of its experts) was there, and too small by so much on each rank;
    else its memory was not to be had. ``scope`` where that is told, as by a kernel that kills for want of RAM.
    """

    cls: MemoryClass
    short_bytes: int | None = None
    card: int | None = None
    pool: bool = False
    scope: Scope | None = None
    at_most: bool = False
    """``short_bytes`` is the size of a buffer that had no room: less may have been missing."""


@dataclass(frozen=True, slots=True)
class Way:
    """One change that gives at least what was missing. ``gives_bytes`` by the plan's law, of all ranks for a pool."""

    key: str
    value: KnobValue
    before: KnobValue
    gives_bytes: int
    effect: Effect
    costs: str
    quality: str
    set: Change

    @property
    def text(self) -> str:
        """``lower contract.len to 163,840``."""
        name = self.key.removeprefix("engine.knobs.")
        if isinstance(self.value, (int, float)) and isinstance(self.before, (int, float)):
            return f"{'lower' if self.value < self.before else 'raise'} {name} to {self.value:,}"
        return f"set {name} to {self.value}"


@dataclass(frozen=True, slots=True)
class Relief:
    """The answer: where it was short, by how much, and every way out that the law knows, the cheapest promise last."""

    question: Question
    runbook: str
    scope: Scope
    sought_bytes: int
    ways: tuple[Way, ...]
    notes: tuple[str, ...]

    @property
    def text(self) -> str:
        """``kv_cache on card 0 short by 512 MiB``."""
        asked = self.question
        where = "in host memory" if self.scope == "host" else f"on card {'?' if asked.card is None else asked.card}"
        if asked.pool:
            where = "in the KV pool" if asked.cls == "kv_cache" else "in the engine's host pool"
        if asked.short_bytes is None:
            return f"{asked.cls} {where} short by an amount that nobody says"
        bound = "at most " if asked.at_most else ""
        return f"{asked.cls} {where} short by {bound}{-(-asked.short_bytes // MIB):,} MiB"


@dataclass(frozen=True, slots=True)
class _Row:
    """One lever of ``relief.toml``."""

    engine: str
    classes: tuple[MemoryClass, ...]
    key: str
    change: Literal["less", "more", "values"]
    effects: tuple[Effect, ...]
    default: KnobValue | None = None
    to: float = 0
    step: float = 1
    values: tuple[KnobValue, ...] = ()
    costs: str = ""
    quality: str = ""


@functools.cache
def _table() -> tuple[Mapping[str, str], tuple[_Row, ...]]:
    found = tomllib.loads(files("archonctl.plan").joinpath("relief.toml").read_text(encoding="utf-8"))
    pages = {row["class"]: row["runbook"] for row in found["class"]}
    rows = tuple(
        _Row(
            effects=tuple(row.pop("for")),
            classes=tuple(row.pop("classes")),
            values=tuple(row.pop("values", ())),
            **row,
        )
        for row in found["lever"]
    )
    return pages, rows


def runbook_of(cls: MemoryClass) -> str:
    """The code of the page on a class that ran out."""
    return _table()[0][cls]


def relieve(trial: Trial, question: Question) -> Relief:
    """Every way out. Raises DeclarationError where the declaration itself contradicts itself."""
    plan = trial.plan({}, detail=True)
    scope = _scope(plan, question)
    page, absent = runbook_of(question.cls), _absent(plan, question.card)
    notes = absent
    for each, note in _targets(plan, question, scope):
        notes = [*absent, note] if note else absent
        for wanted in _goals(question):
            sought = each * (1 if "space" in wanted else ranks(plan))
            if ways := tuple(_ways(trial, plan, question, scope, wanted, sought)):
                return Relief(question, page, scope, sought, ways, tuple(notes))
    none = f"the plan's law knows no change that gives it: archonctl explain {page}"
    return Relief(question, page, scope, question.short_bytes or 1, (), (*notes, none))


def _absent(plan: Plan, card: int | None) -> list[str]:
    """A card that the plan does not have: a slip of who asks, or a card that is gone."""
    cards = sorted({fit.card for fit in plan.fits if fit.card is not None})
    if card is None or card in cards or not cards:
        return []
    return [f"the plan has no card {card}, only {', '.join(map(str, cards))}"]


def _targets(plan: Plan, question: Question, scope: Scope) -> Iterator[tuple[int, str]]:
    """How much to seek, and what to say of it: what was missing, or what the plan is over its budget where that is
    more (what failed first says nothing of the rest), and less where what is said is only a bound; else a share."""
    held, short = _held(plan, question.cls, scope, question.card), question.short_bytes
    fits = [fit for fit in plan.fits if fit.scope == scope and fit.is_known and question.card in (None, fit.card)]
    over = 0 if question.pool else max((-fit.margin_bytes for fit in fits), default=0)
    by_plan = f"each way gives at least the {over / MIB:,.0f} MiB that the plan is over its budget"
    bounded = question.at_most and short is not None and 0 < over < short  # what the plan misses says it better
    if short is not None and not bounded:
        yield max(short, over), by_plan if over > short else ""
        if not question.at_most:
            return
    said = "how much was missing is not said"
    if over > 0:
        yield over, f"{said}: {by_plan}"
    if held:
        has = f"{SHARE:.0%} of the {held / MIB:,.0f} MiB that {question.cls} has by the plan"
        yield max(1, int(held * SHARE)), f"{said}: each way gives at least {has}"
    elif short is None:
        yield 1, f"{said}, and the plan knows no such demand"


def _goals(question: Question) -> Iterator[tuple[Effect, ...]]:
    """What to seek, in this order: an engine that divides a card by itself gives no space back, only a larger pool."""
    if not question.pool:
        yield ("space",)
    if question.pool and question.cls == "offload":
        yield ("offload",)
    if question.cls == "kv_cache":
        yield ("pool", "need")


def _ways(
    trial: Trial, plan: Plan, question: Question, scope: Scope, wanted: tuple[Effect, ...], sought: int
) -> Iterator[Way]:
    """One a lever: what the engine pays with, then precision, then the promise."""
    kind = trial.endpoint.engine.kind
    offered = [row for row in _table()[1] if question.cls in row.classes and row.engine in ("*", kind)]
    for row in sorted(offered, key=lambda row: (row.engine == "*", bool(row.quality))):
        searches = (
            _Search(trial, plan, row, effect, question, scope).smallest(sought)
            for effect in row.effects
            if effect in wanted
        )
        if (way := next((each for each in searches if each is not None), None)) is not None:
            yield way


def _scope(plan: Plan, question: Question) -> Scope:
    """Where the class lies by the plan; without a demand of it, where such memory usually is."""
    if question.scope is not None:
        return question.scope
    scopes = {d.scope for d in plan.forecast.demands if d.cls == question.cls}
    if question.card is not None or "device" in scopes:
        return "device"
    cards = any(d.scope == "device" for d in plan.forecast.demands)
    usual: Scope = "device" if cards and question.cls not in ("ddr_cache", "offload") else "host"
    return "host" if scopes == {"host"} else usual


def _held(plan: Plan, cls: MemoryClass | None, scope: Scope, card: int | None = None) -> int:
    """Bytes by the plan of a class, or of all: on one card (the fullest where none is named), or of the host."""
    mine = [d for d in plan.forecast.demands if d.scope == scope and cls in (None, "unknown", d.cls)]
    if scope == "host":
        return sum(d.bytes for d in mine)
    everywhere = sum(d.bytes for d in mine if d.card is None)
    cards = {d.card for d in mine if d.card is not None and card in (None, d.card)}
    return everywhere + max((sum(d.bytes for d in mine if d.card == index) for index in cards), default=0)


@dataclass(frozen=True)
class _Search:
    """The least change of one lever that gives what is sought."""

    trial: Trial
    plan: Plan
    row: _Row
    effect: Effect
    question: Question
    scope: Scope

    def smallest(self, sought: int) -> Way | None:
        """The change, or None: there is nothing to change, or not enough in it."""
        key, before = self._declared()
        if before is None:
            return None
        for value in self._values(before, lambda value: self._gives(key, value) >= sought):
            gives = self._gives(key, value)
            if gives >= sought:
                row = self.row
                return Way(key, value, before, gives, self.effect, row.costs, row.quality, self._change(key, value))
        return None

    def _declared(self) -> tuple[str, KnobValue | None]:
        endpoint, (table, _, name) = self.trial.endpoint, self.row.key.rpartition(".")
        if table == "contract":
            return self.row.key, getattr(endpoint.contract, name)
        for key, value in endpoint.engine.knobs.items():
            if spelled(key) == name:
                return f"engine.knobs.{key}", value
        return self.row.key, self.row.default

    def _values(self, before: KnobValue, enough: Callable[[KnobValue], bool]) -> Iterator[KnobValue]:
        """The candidates: every choice, or the one number that a bisection ends at."""
        if self.row.change == "values":
            yield from (value for value in self.row.values if value != before)
            return
        if isinstance(before, bool) or not isinstance(before, (int, float)):
            return
        up = self.row.change == "more"
        steps = int(((self.row.to - before) if up else (before - self.row.to)) / self.row.step + 1e-9)
        last = _furthest(steps, lambda n: enough(self._at(before, n, up=up)))
        if last is not None:
            yield self._at(before, last, up=up)

    def _at(self, before: float, steps: int, *, up: bool) -> KnobValue:
        moved = before + steps * self.row.step * (1 if up else -1)
        whole = isinstance(self.row.step, int) and float(before).is_integer()
        return int(moved) if whole else round(moved, 6)

    def _change(self, key: str, value: KnobValue) -> Change:
        mirrors = mirrored(self.trial.endpoint, _MIRRORS.get(key, ()), {}) if key in _MIRRORS else ()
        return dict.fromkeys((key, *mirrors), value)

    def _gives(self, key: str, value: KnobValue) -> int:
        """Bytes that the change gives, by the law; below 0 where it takes some, or cannot be."""
        try:
            after = self.trial.plan(self._change(key, value), detail=self.effect == "need")
        except DeclarationError:
            return -1
        if after.forecast.problems and not self.plan.forecast.problems:
            return -1
        if self.effect == "offload":
            return _held(after, "offload", "host") - _held(self.plan, "offload", "host")
        return self._of_known(key, value, after) if _knows_as_much(self.plan, after) else -1

    def _of_known(self, key: str, value: KnobValue, after: Plan) -> int:
        if self.effect == "space":
            card = self.question.card
            return _held(self.plan, None, self.scope, card) - _held(after, None, self.scope, card)
        if self.effect == "pool":
            pools = pool_bytes(self.plan), pool_bytes(after)
            return -1 if None in pools else (pools[1] or 0) - (pools[0] or 0)
        needs = _need(self.plan, self.trial.endpoint), _need(after, self.trial.endpoint_with(self._change(key, value)))
        return -1 if needs[0] is None or needs[1] is None else needs[0] - needs[1]


def _knows_as_much(before: Plan, after: Plan) -> bool:
    """False where the law has no figure any more (a boot that is too far away): what is unknown is not given back."""
    known = [
        {d.cls for d in plan.forecast.demands if d.cls in ("weights", "kv_cache")}
        | ({"tokens"} if plan.forecast.kv_tokens else set())
        for plan in (before, after)
    ]
    return known[0] <= known[1]


def _need(plan: Plan, endpoint: Endpoint) -> int | None:
    price = kv_price(plan)
    return None if price is None else price.bytes_of(endpoint.contract.len) * endpoint.contract.seqs


def _furthest(steps: int, enough: Callable[[int], bool]) -> int | None:
    """The least number of steps that is enough, where more steps give more; None: not even a great many are."""
    probe = 1
    while probe < steps and not enough(probe):
        probe = min(steps, probe * 2)
    if steps < 1 or not enough(probe):
        return None
    low, high = probe // 2, probe
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
