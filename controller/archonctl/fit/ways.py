"""What would make a refused model fit. Every way is asked as a question of its own; only what fits is named."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from archonctl.catalogue.values import CatalogueModel
from archonctl.fit.cards import SPLITS, card_host, groups
from archonctl.fit.values import Ask, FitResult, WayOut
from archonctl.fit.walk import PLAIN_ASK, verdict
from archonctl.host.cards import CardModel, all_cards
from archonctl.host.profile import Host
from archonctl.memory.interval import GIB

LEN_STEP = 256
"""Contexts are offered in steps that every engine serves unrounded."""
SMALLER_CACHES = ("fp8", "int4")


def fit(model: CatalogueModel, host: Host, ask: Ask = PLAIN_ASK) -> FitResult:
    """``verdict``, and where nothing fits the ways out. Raises as ``verdict``."""
    result = verdict(model, host, ask)
    if result.verdict == "fits":
        return result
    return replace(result, ways_out=tuple(_ways(model, host, replace(ask, len=result.len))))


def _ways(model: CatalogueModel, host: Host, ask: Ask) -> Iterator[WayOut]:
    """The smallest change first: a type of the cache, then less of a promise, then other hardware."""

    def fits(changed: Ask, on: Host = host) -> FitResult | None:
        found = verdict(model, on, changed)
        return found if found.verdict == "fits" else None

    yield from _looser(ask, fits)
    yield from _smaller(ask, fits)
    if host.cards:
        yield from _spilled(model, host, ask, fits)
        yield from _more_cards(host, ask, fits)
    yield from _other_card(host, ask, fits)


Fits = Callable[..., FitResult | None]


def _looser(ask: Ask, fits: Fits) -> Iterator[WayOut]:
    """What was asked too narrowly."""
    if not ask.weight_only and (found := fits(replace(ask, weight_only=True))) and found.chosen:
        yield WayOut(f"weights computed in 16 bits: {_name(found)}", ("--weight-only",))
    if (ask.quants or ask.engine) and (found := fits(replace(ask, quants=(), engine=""))):
        yield WayOut(f"another quant or engine: {_name(found)}", ())
    if ask.tp is not None and (found := fits(replace(ask, tp=None))):
        yield WayOut(f"{_cards(found)} in place of {ask.tp}: {_name(found)}", ())


def _smaller(ask: Ask, fits: Fits) -> Iterator[WayOut]:
    """A smaller cache, a shorter context, fewer conversations."""
    for kind in SMALLER_CACHES:
        if ask.kv_quant in ("f16", "auto") and (found := fits(replace(ask, kv_quant=kind))) and found.chosen:
            yield WayOut(f"a KV cache of {found.chosen.kv.dtype}: {_name(found)}", ("--kv-quant", kind))
            break
    length = ask.len or 0
    steps = _most(length // LEN_STEP - (length % LEN_STEP == 0), lambda n: fits(replace(ask, len=n * LEN_STEP)))
    if steps and (found := fits(replace(ask, len=steps * LEN_STEP))):
        yield WayOut(f"{steps * LEN_STEP:,} tokens a conversation: {_name(found)}", ("--len", str(steps * LEN_STEP)))
    seqs = _most(ask.seqs - 1, lambda n: fits(replace(ask, seqs=n)))
    if seqs and (found := fits(replace(ask, seqs=seqs))):
        yield WayOut(f"{seqs} at once: {_name(found)}", ("--seqs", str(seqs)))


def _spilled(model: CatalogueModel, host: Host, ask: Ask, fits: Fits) -> Iterator[WayOut]:
    """Experts in RAM, where RAM is not known: how much of it that takes."""
    if host.ram_mib is not None or not model.geometry.experts:
        return
    found = fits(ask, host.model_copy(update={"ram_mib": 1 << 24}))
    if found and (choice := found.chosen) and choice.expert_layers:
        # A host keeps a share of its RAM free, so that much more of it is needed.
        room = next(ram for ram in _SIZES_GIB if ram * GIB > choice.host_bytes)
        enough = next(
            (r for r in _SIZES_GIB if r >= room and fits(ask, host.model_copy(update={"ram_mib": r * 1024}))), 0
        )
        if enough:
            text = f"experts of {choice.expert_layers} layers in RAM, {choice.host_bytes / GIB:.0f} GiB: {_name(found)}"
            yield WayOut(text, ("--ram", str(enough)))


_SIZES_GIB = tuple(16 << n for n in range(11))


def _more_cards(host: Host, ask: Ask, fits: Fits) -> Iterator[WayOut]:
    group = groups(host)[0]
    for count in SPLITS:
        if count > len(group.cards):
            cards = tuple(group.card.model_copy(update={"index": index}) for index in range(count))
            if found := fits(replace(ask, tp=None), host.model_copy(update={"cards": cards})):
                yield WayOut(f"{count} x {group.card.name}: {_name(found)}", ("--card", f"{group.card.name} x{count}"))
                return


def _other_card(host: Host, ask: Ask, fits: Fits) -> Iterator[WayOut]:
    """The card with the least memory that holds it alone, of the maker that is there."""
    makers = {card.maker for card in host.cards} - {""}
    known = [
        card for card in all_cards() if card.total_mib and not card.unified and (not makers or card.maker in makers)
    ]
    by_size: dict[int, list[CardModel]] = {}
    for card in known:
        by_size.setdefault(card.total_mib or 0, []).append(card)
    for size in sorted(by_size):
        for card in by_size[size]:
            if found := fits(replace(ask, tp=None), card_host(card.name)):
                yield WayOut(f"{card.name} ({size / 1024:.1f} GiB): {_name(found)}", ("--card", card.name))
                return


def _most(top: int, fits: Callable[[int], FitResult | None]) -> int:
    """The largest number from 1 to ``top`` that fits, by halving; 0 if none does."""
    low, high = 0, max(0, top)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def _name(found: FitResult) -> str:
    choice = found.chosen
    return f"{choice.quant} under {choice.engine}" if choice else ""


def _cards(found: FitResult) -> str:
    count = found.chosen.tp if found.chosen else 0
    return f"{count} card{'s' if count != 1 else ''}"
