"""A card that a profile names without its figures gets those of the catalogue."""

from __future__ import annotations

from typing import Any

from archonctl.deployment.keys import Loc
from archonctl.deployment.problems import KeyProblem, Place
from archonctl.errors import DeclarationError
from archonctl.host.cards import CardModel, matching_cards

_SAME_MEMORY = 0.01
"""Cards of one name whose memory differs by less are one card to a plan (H100 SXM and PCIe)."""


def fill_cards(cards: list[Any], place: Place, notes: list[str]) -> list[DeclarationError]:
    """Add ``total_mib``, ``maker`` and ``target`` to the tables that lack them, in place; what cannot be filled.

    The smallest memory counts where the name belongs to several cards of about the same, those with a published figure
    before others. A card with ``total_mib`` may have any name. ``notes`` gets a line for each estimated memory.
    """
    problems: list[DeclarationError] = []
    for number, card in enumerate(cards):
        if not isinstance(card, dict) or not isinstance(card.get("name"), str):
            continue
        found = _published(matching_cards(card["name"]))
        for key in ("maker", "target"):
            if len(values := {getattr(model, key) for model in found}) == 1:
                card.setdefault(key, values.pop())
        if "total_mib" not in card:
            problem = _fill_total(card, found, ("cards", number, "name"), place)
            problems += [problem] if problem else []
            if problem is None and (note := _estimated(found)) and note not in notes:
                notes.append(note)
    return problems


def _published(found: tuple[CardModel, ...]) -> tuple[CardModel, ...]:
    """Of cards with the same nominal memory those whose usable memory is published; all of them where none is."""
    same = len({model.memory_mib for model in found}) == 1
    return tuple(model for model in found if same and model.usable_mib is not None) or found


def _estimated(found: tuple[CardModel, ...]) -> str:
    """What is to be said of a card whose usable memory no public source tells; "" for another one."""
    card = min(found, key=lambda model: model.total_mib or 0)
    size = card.programs_mib
    if size is None or size.is_exact or card.memory_mib is None:
        return ""
    kept = f"less what its driver keeps is taken as {size.best:,.0f} ({size.low:,.0f} to {size.high:,.0f})"
    known = kept if size.low else "is taken: what its driver keeps is not known"
    return f"usable memory of {card.name} is not published: {card.memory_mib:,} MiB {known}; total_mib states it"


def _fill_total(card: dict[str, Any], found: tuple[CardModel, ...], loc: Loc, place: Place) -> KeyProblem | None:
    totals = [model.total_mib for model in found if model.total_mib is not None]
    key, name = f"cards[{loc[1]}].name", card["name"][:80]
    names = ", ".join(model.name for model in found)
    if not found:
        message = f"{name!r} is no card of the catalogue, so its memory is not known"
        return KeyProblem("card-unknown", key, message, where=place(loc), hint="state total_mib (MiB)")
    if len(totals) < len(found) or any(model.unified for model in found):
        message = f"{name!r} ({names}) shares RAM, or its memory is not published"
        return KeyProblem("card-unknown", key, message, where=place(loc), hint="state total_mib (MiB)")
    if max(totals) - min(totals) > _SAME_MEMORY * max(totals):
        sizes = ", ".join(f"{model.name} ({model.total_mib:,} MiB)" for model in found)
        message = f"{name!r} may be {sizes}"
        return KeyProblem("card-ambiguous", key, message, where=place(loc), hint="say which one, or state total_mib")
    card["total_mib"] = min(totals)
    return None
