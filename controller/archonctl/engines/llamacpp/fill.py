"""How ``--fit`` shares layers out where not all of them fit the cards (common/fit.cpp of b11434, steps 3 and 4).

First the cards are filled from the last to the first, with whole layers, or with layers whose experts stay in RAM;
then, where a mixture fits that way, layers at the front get their experts back, card by card. The engine may also cut
one layer a card in pieces; this counts whole layers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from archonctl.engines.llamacpp.offload import EXPERTS, Offload, Override, some_layers

Wanted = Callable[[Offload], Sequence[float]]
"""Bytes that each card is asked for."""


@dataclass(frozen=True, slots=True)
class Held:
    """Layers on one card, the output among them on the last; of ``bare`` ones the experts are in RAM."""

    layers: int = 0
    bare: int = 0

    @property
    def full(self) -> int:
        """Layers with all of their tensors."""
        return self.layers - self.bare


Layout = tuple[Held, ...]


def fill(layers: int, mixture: bool, offload: Offload, rooms: Sequence[float], wanted: Wanted) -> Layout:
    """What each card holds at the end; ``layers`` without the output, ``rooms`` in bytes, margins taken off."""

    def fits(layout: Layout, card: int) -> bool:
        return wanted(placed(layout, layers, offload))[card] <= rooms[card]

    layout = _filled(layers, mixture, len(rooms), fits)
    if not mixture:
        return layout
    without = wanted(replace(offload, overrides=(_experts_of(range(layers)),)))
    if sum(rooms) - sum(without) <= 0:
        return layout
    return _refilled(layout, fits)


def _filled(layers: int, mixture: bool, cards: int, fits: Callable[[Layout, int], bool]) -> Layout:
    layout: Layout = (Held(),) * cards
    for card in reversed(range(cards)):
        left = layers + 1 - sum(held.layers for held in layout[card + 1 :])

        def with_layers(count: int, card: int = card, layout: Layout = layout) -> Layout:
            bare = count - (card == cards - 1) if mixture and count else 0
            return _changed(layout, card, Held(count, bare))

        count = _most(left, lambda n: fits(with_layers(n), card))  # noqa: B023 - called at once
        layout = with_layers(count)
    return layout


def _refilled(layout: Layout, fits: Callable[[Layout, int], bool]) -> Layout:
    """Layers with their experts, at the front, in place of bare ones further back."""
    first = len(layout) - 1
    while first > 0 and layout[first - 1].layers:
        first -= 1
    card = 0
    while card <= first < len(layout):
        most = sum(held.bare for held in layout[first:])
        count = _most(most, lambda n: fits(_converted(layout, card, first, n), card))  # noqa: B023 - called at once
        layout = _converted(layout, card, first, count)
        while first < len(layout) - 1 and not layout[first].bare:
            first += 1
        card += 1
    return layout


def _converted(layout: Layout, card: int, first: int, count: int) -> Layout:
    """``count`` bare layers of the cards from ``first`` on become full ones of ``card``."""
    changed = list(layout)
    for giver in range(first, len(layout)):
        take = min(count, changed[giver].bare)
        changed[giver] = Held(changed[giver].layers - take, changed[giver].bare - take)
        changed[card] = replace(changed[card], layers=changed[card].layers + take)
        count -= take
    return tuple(changed)


def placed(layout: Layout, layers: int, offload: Offload) -> Offload:
    """The flags that --fit sets for a layout."""
    on_cards = sum(held.layers for held in layout)
    bare: list[int] = []
    at = layers + 1 - on_cards
    for held in layout:
        bare += range(at + held.full, at + held.layers)
        at += held.layers
    split = tuple(float(held.layers) for held in layout) if len(layout) > 1 else ()
    overrides = (_experts_of(bare),) if bare else ()
    return replace(offload, gpu_layers=on_cards, tensor_split=split, overrides=overrides)


def _experts_of(layers: Sequence[int]) -> Override:
    return some_layers(layers, EXPERTS), None


def _changed(layout: Layout, card: int, held: Held) -> Layout:
    return (*layout[:card], held, *layout[card + 1 :])


def _most(most: int, holds: Callable[[int], bool]) -> int:
    """The largest number up to ``most`` that holds, where fewer hold too; 0 without a try if none does."""
    if holds(most):
        return most
    low, high = 0, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
