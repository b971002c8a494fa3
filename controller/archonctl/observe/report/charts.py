"""Geometry of the drawings, as plain numbers: x in percent of the width, so that text keeps its size on a phone."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from archonctl.memory.demand import Demand, Fit, MemoryClass
from archonctl.memory.interval import MIB
from archonctl.observe.entries import Entry
from archonctl.plan.values import Plan

CLASSES: dict[MemoryClass, str] = {
    "weights": "weights",
    "kv_cache": "KV cache",
    "ddr_cache": "cache in RAM",
    "offload": "offload",
    "activation": "activations",
    "scratchpad": "scratchpad",
    "unknown": "unknown",
}
_LABEL_PERCENT = 22.0
"""A part of a bar that is wide enough for its name on a phone."""
_NAME_PERCENT = 24.0
CHART_PX = 220
_TOP, _BOTTOM = 26, 30
_MOST_POINTS = 400


@dataclass(frozen=True, slots=True)
class Segment:
    """One class in a bar. ``share`` is of the bar's whole."""

    cls: MemoryClass
    name: str
    mib: float
    x: float
    width: float
    share: float

    @property
    def is_labelled(self) -> bool:
        """True if its name fits."""
        return self.width >= _LABEL_PERCENT


@dataclass(frozen=True, slots=True)
class Bar:
    """The memory of one card, or of the host. ``total_mib`` is None where nobody knows it."""

    title: str
    segments: tuple[Segment, ...]
    demands: tuple[Demand, ...]
    want_mib: float
    total_mib: float | None
    budget_mib: float | None
    budget_x: float | None
    verdict: str
    reason: str
    note: str = ""

    @property
    def left_mib(self) -> float | None:
        """What is not asked for; less than 0 where too much is."""
        return None if self.total_mib is None else self.total_mib - self.want_mib


def bars(plan: Plan) -> tuple[Bar, ...]:
    """One for each card that something is asked of, then the host."""
    cards = {card.index: card for card in plan.forecast.cards}
    found = []
    for fit in sorted(plan.fits, key=lambda each: (each.scope != "device", each.card or 0)):
        mine = [d for d in plan.forecast.demands if d.scope == fit.scope and d.bytes and d.card in (None, fit.card)]
        if not mine:
            continue
        card = cards.get(fit.card) if fit.card is not None else None
        title = "Host RAM" if fit.scope == "host" else f"Card {fit.card}" if fit.card is not None else "Each card"
        note = ""
        if card is not None:
            title += f", {card.name}" if card.name and card.name.lower() != title.lower() else ""
            if card.pool_needed_mib is not None and card.pool_mib is not None:
                spare = card.pool_mib - card.pool_needed_mib
                note = (
                    f"of the KV pool of {card.pool_mib:,.0f} MiB the contract with its margin needs "
                    f"{card.pool_needed_mib:,.0f} MiB: {abs(spare):,.0f} MiB {'left' if spare >= 0 else 'short'}"
                )
        found.append(_bar(title, mine, fit, card.total_mib if card is not None else None, note))
    return tuple(found)


def _bar(title: str, demands: Sequence[Demand], fit: Fit, total_mib: float | None, note: str) -> Bar:
    sums: dict[MemoryClass, float] = {}
    for each in demands:
        sums[each.cls] = sums.get(each.cls, 0.0) + each.bytes / MIB
    want, budget = sum(sums.values()), fit.budget_bytes / MIB if fit.is_known else None
    scale = max(want, total_mib or 0.0, budget or 0.0) or 1.0
    segments, x = [], 0.0
    for cls, name in CLASSES.items():
        if mib := sums.get(cls):
            width = 100 * mib / scale
            segments.append(Segment(cls, name, mib, round(x, 3), round(width, 3), mib / scale))
            x += width
    budget_x = None if budget is None else round(100 * max(0.0, budget) / scale, 3)
    return Bar(title, tuple(segments), tuple(demands), want, total_mib, budget, budget_x, fit.verdict, fit.reason, note)


@dataclass(frozen=True, slots=True)
class Point:
    """One verdict that knows its tokens. ``y`` in pixels."""

    x: float
    y: float
    entry: Entry


@dataclass(frozen=True, slots=True)
class Edge:
    """A straight piece of a stepped line."""

    x1: float
    y1: float
    x2: float
    y2: float


@dataclass(frozen=True, slots=True)
class Chart:
    """Contract and capacity over time."""

    points: tuple[Point, ...]
    capacity: tuple[Edge, ...]
    contract: tuple[Edge, ...]
    ticks: tuple[tuple[float, int], ...]
    releases: tuple[tuple[float, str], ...]
    """Where each begins."""
    names: tuple[tuple[float, str], ...]
    """Of those, the ones that there is room for a name of."""
    began: float
    ended: float
    height: int = CHART_PX


def chart(found: Iterable[Entry]) -> Chart | None:
    """Of everything that knows its tokens; None if there is nothing of the kind."""
    known = [each for each in found if each.is_verdict and each.live_tokens is not None][-_MOST_POINTS:]
    if not known:
        return None
    tokens = [each.live_tokens or 0 for each in known] + [c for each in known if (c := each.contract_tokens)]
    low, high, step = _scale(min(tokens), max(tokens))
    began, ended = known[0].at, known[-1].at

    def x(at: float) -> float:
        return round(2 + 96 * (at - began) / (ended - began), 3) if ended > began else 50.0

    def y(value: float) -> float:
        return round(CHART_PX - _BOTTOM - (CHART_PX - _TOP - _BOTTOM) * (value - low) / (high - low), 1)

    points = [Point(x(each.at), y(each.live_tokens or 0), each) for each in known]
    promised = [(x(each.at), y(each.contract_tokens)) for each in known if each.contract_tokens]
    releases = [
        (x(each.at), each.release)
        for before, each in zip([None, *known], known, strict=False)
        if before is None or before.release != each.release
    ]
    ticks = [(y(value), value) for value in range(low, high + 1, step)]
    capacity = _steps([(point.x, point.y) for point in points])
    return Chart(
        tuple(points), capacity, _steps(promised), tuple(ticks), tuple(releases), _roomy(releases), began, ended
    )


def _roomy(releases: Sequence[tuple[float, str]]) -> tuple[tuple[float, str], ...]:
    """Names need their room on a phone: about a quarter of the width. The newest are told first."""
    found: list[tuple[float, str]] = []
    for x, name in reversed(releases):
        if not found or found[-1][0] - x >= _NAME_PERCENT:
            found.append((x, name))
    return tuple(found)


def _scale(low: int, high: int) -> tuple[int, int, int]:
    """Ends and step of an axis with three to six round marks that has room above and below."""
    spread = max(high - low, high // 10, 1)
    step = 10 ** math.floor(math.log10(spread))
    step = next(int(max(1, step * by)) for by in (0.5, 1, 2, 5, 10) if spread / max(1, step * by) <= 3)
    first = max(0, (low - step // 4) // step * step)
    last = -(-(high + step // 4) // step) * step
    return first, max(last, first + step), step


def _steps(points: Sequence[tuple[float, float]]) -> tuple[Edge, ...]:
    """Along, then up or down: a value holds until the next is known. The last one goes on to the edge."""
    return tuple(_edges(points))


def _edges(points: Sequence[tuple[float, float]]) -> Iterator[Edge]:
    if not points:
        return
    began = points[0]
    for here, there in pairwise(points):
        if there[1] == here[1]:
            continue
        yield Edge(began[0], began[1], there[0], here[1])
        yield Edge(there[0], here[1], there[0], there[1])
        began = there
    yield Edge(began[0], began[1], 100.0, points[-1][1])
