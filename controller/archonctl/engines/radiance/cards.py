"""The split of each card, and what is to be said about it."""

from __future__ import annotations

from dataclasses import dataclass

from archonctl.engines.base import CardShare, Problem
from archonctl.engines.radiance.calibration import calibration
from archonctl.engines.radiance.capacity import Funds
from archonctl.engines.radiance.memory import Ceiling, ceiling_mib
from archonctl.engines.radiance.settings import Settings
from archonctl.host.profile import Card, Host


@dataclass(frozen=True, slots=True)
class CardView:
    """One rank's card: the profile's row and its ceiling where they are known, and the share."""

    share: CardShare
    card: Card | None
    ceiling: Ceiling | None


def views(settings: Settings, host: Host, funds: Funds, needed_mib: float | None) -> tuple[CardView, ...]:
    """One view a rank; the profile's first cards in order. Ranks without a card in the profile have unknown sizes."""
    known = sorted(host.cards, key=lambda card: card.index)[: settings.tp]
    missing = range(len(known), settings.tp) if not known else ()
    rows = [_view(settings, card, funds, needed_mib) for card in known]
    rows += [CardView(_share(rank, f"rank {rank}", settings, funds, needed_mib), None, None) for rank in missing]
    return tuple(rows)


def _view(settings: Settings, card: Card, funds: Funds, needed_mib: float | None) -> CardView:
    ceiling = ceiling_mib(card)
    slab = settings.slab_mib if settings.era == "pair" else derived_slab_mib(card, ceiling, funds.pool_mib)
    share = CardShare(
        index=card.index,
        name=card.name,
        total_mib=float(card.total_mib),
        ceiling_mib=ceiling.value.best,
        slab_mib=None if slab is None else float(slab),
        pool_mib=funds.pool_mib,
        pool_needed_mib=needed_mib,
        margin_mib=_margin(funds, needed_mib),
        outside_mib=outside_mib(settings, card, ceiling),
    )
    return CardView(share, card, ceiling)


def outside_mib(settings: Settings, card: Card, ceiling: Ceiling) -> float | None:
    """What is neither slab nor pool on a card: in the pair era what the settle line shows, else the hand figure.

    The hand figure counts the arena and the headroom in full, as the engine's own table does; at settle most of
    that is free. None where neither is known.
    """
    if settings.era == "pair" and ceiling.held_mib is not None:
        return ceiling.held_mib.best
    return float(card.outside_mib) if card.outside_mib else None


def _share(index: int, name: str, settings: Settings, funds: Funds, needed_mib: float | None) -> CardShare:
    slab = float(settings.slab_mib) if settings.era == "pair" and settings.slab_mib else None
    return CardShare(index, name, None, None, slab, funds.pool_mib, needed_mib, _margin(funds, needed_mib))


def _margin(funds: Funds, needed_mib: float | None) -> float | None:
    return None if funds.pool_mib is None or needed_mib is None else funds.pool_mib - needed_mib


def derived_slab_mib(card: Card, ceiling: Ceiling, pool_mib: float | None) -> float | None:
    """Resolver era: what the engine's own table leaves for the expert plane.

    Card - consumed outside (context, arena, headroom) - pool, as radiance 1.0.5 ``core/mem/vram_budget.cpp``
    subtracts them; without an outside figure, the ceiling less the pool.
    """
    if pool_mib is None:
        return None
    claimable = card.total_mib - card.outside_mib if card.outside_mib else ceiling.value.best
    return max(0.0, claimable - pool_mib)


def problems(settings: Settings, host: Host, shown: tuple[CardView, ...]) -> list[Problem]:
    """``cards-too-few`` and, in the pair era, ``card-over-ceiling``; both numbers in the text."""
    found = []
    if host.cards and len(host.cards) < settings.tp:
        message = f"tp {settings.tp} needs {settings.tp} cards, the host profile has {len(host.cards)}"
        found.append(Problem("cards-too-few", message, "lower tp, or add the cards to the host profile"))
    for view in shown if settings.era == "pair" else ():
        asked, ceiling = _pair_mib(view), view.ceiling
        if asked is not None and ceiling is not None and asked > ceiling.value.high:
            over = asked - ceiling.value.best
            message = (
                f"card {view.share.index}: slab {view.share.slab_mib:,.0f} + pool {view.share.pool_mib:,.0f} = "
                f"{asked:,.0f} MiB, the ceiling is {ceiling.value.best:,.0f} MiB: {over:,.0f} MiB too many"
            )
            hint = f"lower vram-weights-mib or vram-kv-mib by {over:,.0f} MiB"
            found.append(Problem("card-over-ceiling", message, hint))
    return found


def notes(settings: Settings, shown: tuple[CardView, ...]) -> list[str]:
    """Ceilings by every method and what stays free; once for cards that say the same."""
    lines: dict[str, None] = {}
    if not any(view.ceiling for view in shown):
        lines["no card is known: neither ceiling nor slab was checked"] = None
    for view in shown:
        for line in _ceiling_notes(view) + _split_notes(settings, view):
            lines[line] = None
    return list(lines)


def _ceiling_notes(view: CardView) -> list[str]:
    card, ceiling = view.card, view.ceiling
    if card is None or ceiling is None:
        return []
    by_hand = (
        f"{ceiling.hand_mib:,.0f} MiB by hand ({card.total_mib:,} - {card.outside_mib:,} outside - "
        f"{card.reserve_mib:,} reserve)"
    )
    if ceiling.at_ceiling_mib is None or ceiling.floor_mib is None or ceiling.settle_free_mib is None:
        return [f"ceiling of slab + pool: {by_hand}; no settle line is declared"]
    off = ceiling.at_ceiling_mib - ceiling.hand_mib
    stated = f", stated as {ceiling.at_ceiling_mib:,.0f} ({off:+,.0f})" if off else ""
    free = ceiling.settle_free_mib
    return [
        f"ceiling of slab + pool: {by_hand}{stated}; {ceiling.value.best:,.0f} by the settle line "
        f"({ceiling.value.low:,.0f} to {ceiling.value.high:,.0f} by its rounding): {free.best:,.0f} MiB were free over "
        f"a floor of {ceiling.floor_mib:,.2f}"
    ]


def _pair_mib(view: CardView) -> float | None:
    share = view.share
    return None if share.slab_mib is None or share.pool_mib is None else share.slab_mib + share.pool_mib


def _split_notes(settings: Settings, view: CardView) -> list[str]:
    share, ceiling, asked = view.share, view.ceiling, _pair_mib(view)
    if view.card is None or ceiling is None or asked is None or share.slab_mib is None or share.pool_mib is None:
        return []
    if settings.era == "resolver":
        other = ceiling.value.best - share.pool_mib
        line = (
            f"slab by the engine's own table (card - {view.card.outside_mib:,} outside - pool): about "
            f"{share.slab_mib:,.0f} MiB; under the ceiling it would be {other:,.0f}; the boot's budget table decides"
        )
        return [line, *slab_notes(share.slab_mib)]
    lines = []
    left = ceiling.value.best - asked
    free = ceiling.free_mib(share.slab_mib, share.pool_mib)
    if free is not None and ceiling.floor_mib is not None:
        lines.append(
            f"slab + pool {asked:,.0f} MiB: about {free.best:,.0f} MiB stay free on the card, of which {left:,.0f} are "
            f"above the engine's own floor of {ceiling.floor_mib:,.2f}; only those are margin"
        )
    if ceiling.held_mib is not None and view.card.outside_mib:
        lines.append(
            f"outside slab and pool: {view.card.outside_mib:,} MiB by hand (arena and headroom in full), "
            f"{ceiling.held_mib.best:,.0f} held at settle"
        )
    if ceiling.value.low < asked <= ceiling.value.high:
        lines.append(
            f"slab + pool {asked:,.0f} MiB is inside the rounding of the ceiling ({ceiling.value.low:,.0f} to "
            f"{ceiling.value.high:,.0f}): it may not fit"
        )
    return [*lines, *slab_notes(share.slab_mib)]


def slab_notes(slab_mib: float) -> list[str]:
    """Prefill speed at a slab, as measured, beside what a straight line through the ends would say.

    Only the measured points are facts: between them is a threshold, and the line was wrong where it was tried.
    """
    points = calibration().slab_prefill
    (low_mib, low_tps), (high_mib, high_tps) = points[0], points[-1]
    if not low_mib <= slab_mib <= high_mib:
        return []
    line = low_tps + (slab_mib - low_mib) * (high_tps - low_tps) / (high_mib - low_mib)
    below = max(point for point in points if point[0] <= slab_mib)
    above = min(point for point in points if point[0] >= slab_mib)
    if below == above:
        said = f"measured {below[1]:,.0f} t/s"
    else:
        said = f"measured {below[1]:,.0f} t/s at {below[0]:,.0f} and {above[1]:,.0f} at {above[0]:,.0f}"
    return [
        f"prefill (43,500 tokens, one stream) with a slab of {slab_mib:,.0f} MiB: {said}; a straight line would say "
        f"{line:,.0f}, but it is a threshold, not a slope"
    ]
