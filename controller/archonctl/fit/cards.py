"""The cards of a host as places to put a model: groups of identical ones, and what each has to give."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from archonctl.errors import UsageError
from archonctl.host.capacity import card_capacity, host_capacity
from archonctl.host.cards import CardModel, all_cards, find_card, matching_cards
from archonctl.host.profile import Card, Host
from archonctl.memory.interval import GIB, MIB

SPLITS = (1, 2, 4, 8)
"""Cards that a model is shared over: what heads of public models divide by."""
MOST_CARDS = 64


@dataclass(frozen=True, slots=True)
class Group:
    """Cards of one name and memory, those with most to give first."""

    cards: tuple[Card, ...]
    free: tuple[int, ...]
    """Bytes that each has to give."""

    @property
    def card(self) -> Card:
        """Any of them."""
        return self.cards[0]

    def free_bytes(self, count: int) -> int:
        """What the tightest of the best ``count`` cards has to give."""
        return self.free[count - 1]

    def splits(self, forced: int | None) -> tuple[int, ...]:
        """The numbers of cards to try, fewest first."""
        if forced is None:
            return SPLITS[: bisect_right(SPLITS, len(self.cards))]
        return (forced,) if forced <= len(self.cards) else ()


@dataclass(frozen=True, slots=True)
class Place:
    """A machine, its cards as groups, and it in a few words."""

    host: Host
    groups: tuple[Group, ...]
    words: str


def place_of(host: Host) -> Place:
    """The machine as a place to put models."""
    found = groups(host)
    return Place(host, found, _where(host, found))


def groups(host: Host) -> tuple[Group, ...]:
    """Groups of cards that can share a model, the one with the freest card first. Cards of their own memory go before
    those that share RAM."""
    found: dict[tuple[str, int], list[tuple[int, int, Card]]] = {}
    for card in host.cards:
        found.setdefault((card.name, card.total_mib), []).append((-available_bytes(card), card.index, card))
    made = []
    for cards in found.values():
        cards.sort(key=lambda each: each[:2])
        made.append(Group(tuple(card for _, _, card in cards), tuple(-free for free, _, _ in cards)))
    return tuple(sorted(made, key=lambda group: (group.card.unified, -group.free[0])))


def available_bytes(card: Card) -> int:
    """What is free, or all but what a profile says is consumed beside an engine where that is not known."""
    capacity = card_capacity(card)
    if capacity.free_known:
        return capacity.free_bytes
    return max(0, capacity.total_bytes - card.outside_mib * MIB)


def host_with(host: Host, cards: Sequence[Card]) -> Host:
    """The same machine with these cards alone, each as large as what it has to give."""
    mine = tuple(
        card.model_copy(
            update={
                "total_mib": max(1, available_bytes(card) // MIB),
                "free_mib": None,
                "outside_mib": 0,
                "reserve_mib": 0,
                "settle": None,
            }
        )
        for card in sorted(cards, key=lambda card: card.index)
    )
    return host.model_copy(update={"cards": mine})


def where(host: Host) -> str:
    """The machine in a few words."""
    return _where(host, groups(host))


def _where(host: Host, found: tuple[Group, ...]) -> str:
    if not host.cards:
        ram = host_capacity(host)
        return f"no device, {_gib(ram.free_bytes or ram.total_bytes)} of RAM" if ram.known else "no device, RAM unknown"
    parts = [
        f"{f'{len(group.cards)} x ' if len(group.cards) > 1 else ''}{group.card.name}, "
        f"{_gib(group.free_bytes(len(group.cards)))} {'free' if group.card.free_mib is not None else 'in all'}"
        for group in found
    ]
    return "; ".join(parts)


def card_host(text: str, ram_gib: float | None = None) -> Host:
    """``NAME`` or ``NAMExN`` as a host of N such cards of the catalogue, with so much RAM (None: unknown).

    Raises UsageError ``card-unknown`` or ``card-ambiguous``.
    """
    name, count = _counted(text)
    return _host_of(_card(name), count, text, ram_gib)


def every_card(ram_gib: float | None = None) -> tuple[Host, ...]:
    """A host of each card of the catalogue whose memory is published."""
    return tuple(_host_of(model, 1, model.name, ram_gib) for model in all_cards() if model.total_mib)


def _host_of(model: CardModel, count: int, name: str, ram_gib: float | None) -> Host:
    one = Card(
        index=0,
        name=model.name,
        total_mib=model.total_mib or 0,
        maker=model.maker,
        target=model.target,
        unified=model.unified,
    )
    cards = tuple(one.model_copy(update={"index": index}) for index in range(count))
    ram = None if ram_gib is None else max(1, int(ram_gib * 1024))
    return Host(name=name, source="assumed", ram_mib=ram, cards=cards)


def _counted(text: str) -> tuple[str, int]:
    """``T4x2``, ``T4 x2`` and ``T4*2``; a name that ends in a number of its own (``RTX 4090``) is left alone."""
    head, mark, tail = text.strip().replace("*", "x").replace("×", "x").rpartition("x")
    if mark and head.strip() and tail.strip().isdigit() and 0 < int(tail) <= MOST_CARDS and matching_cards(head):
        return head.strip(), int(tail)
    return text.strip(), 1


def _card(name: str) -> CardModel:
    found = matching_cards(name)
    card = find_card(name)
    if card is None and found and all(each.total_mib == found[0].total_mib for each in found):
        card = found[0]
    if card is not None and card.total_mib:
        return card
    if card is not None:
        raise UsageError(
            "card-unknown", f"the memory of {card.name} is not published", hint="describe the host: --profile FILE"
        )
    if found:
        names = ", ".join(f"{each.name} ({each.total_mib or 0:,} MiB)" for each in found)
        raise UsageError("card-ambiguous", f"{name[:80]!r} may be {names}", hint="say which one")
    raise UsageError(
        "card-unknown", f"{name[:80]!r} is no card of the catalogue", hint="describe the host: --profile FILE"
    )


def _gib(size: float) -> str:
    return f"{size / GIB:.1f} GiB"
