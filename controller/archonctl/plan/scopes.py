"""What is asked of the host and of every card, against what each of them has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from archonctl.engines.base import Forecast
from archonctl.host.capacity import card_capacity, host_capacity, outside_demands
from archonctl.host.profile import Card, Host
from archonctl.memory.demand import HEADROOM, Capacity, Demand, Fit, fit, fit_scopes


def judged_scopes(forecast: Forecast, host: Host) -> tuple[Fit, ...]:
    """The fit of the host, then of each card that something is asked of, by the engine's own rule for cards.

    A card that shares RAM is asked for twice: as a card, and as a part of the host, which then keeps no more free than
    the engine's rule for cards says.
    """
    demands, rule = forecast.demands, forecast.card_rule
    asked = [demand for demand in demands if demand.scope == "device"]
    named = {demand.card for demand in asked}
    used = [card for card in host.cards if card.index in named or None in named]
    outside = () if rule.counts_outside else outside_demands(used)
    in_ram = tuple(_in_ram(asked, used, host))
    everything, headroom = (*demands, *outside, *in_ram), rule.headroom if in_ram else HEADROOM
    cards = {card.index: replace(card_capacity(card), ceiling_bytes=rule.ceilings.get(card.index)) for card in used}
    if rule.together and used:
        ram = fit(everything, "host", host_capacity(host), headroom)
        return ram, fit(everything, "device", _together(cards.values()), rule.headroom)
    return fit_scopes(everything, host_capacity(host), cards, headroom, rule.headroom)


def memory_notes(forecast: Forecast, fits: Iterable[Fit], host: Host) -> Iterator[str]:
    """What was not checked, what is to be said of the host, and what would refuse only a start from here."""
    if host.source != "assumed":  # an undeclared host is told by what was not checked
        yield from host.notes
    yield from (fit.finding.message for fit in fits if not fit.is_known and fit.finding)
    pinned = sum(demand.bytes for demand in forecast.demands if demand.pinned) >> 20
    if host.source == "sysfs" and isinstance(host.memlock_mib, int) and pinned > host.memlock_mib:
        yield (
            f"{pinned:,} MiB are pinned, and whoever reads this may lock {host.memlock_mib:,}: the unit lifts that "
            "limit (LimitMEMLOCK=infinity), a start with `up` does not"
        )


def _in_ram(asked: Iterable[Demand], used: Iterable[Card], host: Host) -> Iterator[Demand]:
    """What lies on cards without memory of their own is RAM too; a carve-out that is more than the RAM is not."""
    shared = [card.index for card in used if card.unified and card.total_mib <= (host.ram_mib or 0)]
    for demand in asked if shared else ():
        if demand.card is None or demand.card in shared:
            yield replace(demand, scope="host", card=None, detail=f"{demand.detail}, on a card that shares RAM")


def _together(cards: Iterable[Capacity]) -> Capacity:
    """All cards as one, for what lies on some of them."""
    every = tuple(cards)
    return Capacity(
        sum(card.total_bytes for card in every),
        sum(card.free_bytes for card in every),
        known=all(card.known for card in every),
        free_known=all(card.free_known for card in every),
    )
