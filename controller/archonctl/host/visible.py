"""Which cards an engine is given: the variables of the drivers' runtimes that hide the others.

Sources: CUDA C Programming Guide, "CUDA environment variables" (CUDA_VISIBLE_DEVICES, CUDA_DEVICE_ORDER);
rocm.docs.amd.com, "GPU isolation techniques" (ROCR_VISIBLE_DEVICES first, then HIP_VISIBLE_DEVICES or
CUDA_VISIBLE_DEVICES); Level Zero specification, "environment variables" (ZE_AFFINITY_MASK).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

from archonctl.host.profile import Card, Host

CUDA = "CUDA_VISIBLE_DEVICES"
_VARIABLES: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "nvidia": ((CUDA,),),
    "amd": (("ROCR_VISIBLE_DEVICES",), ("HIP_VISIBLE_DEVICES", CUDA)),
    "intel": (("ZE_AFFINITY_MASK",),),
    "": ((CUDA,), ("HIP_VISIBLE_DEVICES",)),
}
"""By maker: one after the other, each step by the first variable that is set."""
VARIABLES = frozenset(name for steps in _VARIABLES.values() for step in steps for name in step)
_SPEAKS_TO = {"HIP_VISIBLE_DEVICES": "amd", "ROCR_VISIBLE_DEVICES": "amd", "ZE_AFFINITY_MASK": "intel"}
_NAMED = {"amd": "HIP_VISIBLE_DEVICES", "intel": "ZE_AFFINITY_MASK"}


def visible_host(host: Host, environ: Mapping[str, str]) -> Host:
    """The machine with the cards that an engine under these variables sees, in the order in which it counts them.

    Numbers count the cards of one maker in the order of their indices. Names (UUIDs, MIG slices) are not known here:
    then every card stays, and a note says so.
    """
    if not host.cards or not any(name in environ for name in VARIABLES):
        return host
    makers = {card.maker for card in host.cards}
    seen, notes = list[Card](), list[str]()
    for maker in _built_for(makers, environ):
        cards = sorted((card for card in host.cards if card.maker == maker), key=lambda card: card.index)
        for step in _VARIABLES[maker]:
            if name := next((name for name in step if name in environ), ""):
                cards, note = _shown(cards, name, environ)
                notes += [note] if note and note not in notes else []
        seen += cards
    if len(seen) < len(host.cards):
        shown = ", ".join(str(card.index) for card in seen) or "none"
        notes.insert(0, f"of {len(host.cards)} cards engine.env shows {len(seen)} to the engine: {shown}")
    return host.model_copy(update={"cards": tuple(seen), "notes": (*host.notes, *notes)})


def visible_environment(cards: Sequence[Card], host: Host) -> dict[str, str]:
    """The variables that show an engine these cards of one maker and no others; empty where that is all of them."""
    chosen = {card.index for card in cards}
    if not chosen or chosen == {card.index for card in host.cards}:
        return {}
    maker = cards[0].maker
    alike = sorted(card.index for card in host.cards if card.maker == maker)
    numbers = ",".join(str(number) for number, index in enumerate(alike) if index in chosen)
    name = _NAMED.get(maker, CUDA)
    return {name: numbers} | ({"CUDA_DEVICE_ORDER": "PCI_BUS_ID"} if name == CUDA else {})


def _built_for(makers: AbstractSet[str], environ: Mapping[str, str]) -> list[str]:
    """The makers whose cards the engine can use: all, unless a variable speaks to the runtime of one alone."""
    told = {maker for name, maker in _SPEAKS_TO.items() if name in environ}
    if "amd" not in told and CUDA in environ:
        told.add("nvidia")  # HIP obeys it too
    return sorted(makers & (told | {""}) if makers & told else makers)


def _shown(cards: Sequence[Card], name: str, environ: Mapping[str, str]) -> tuple[list[Card], str]:
    """The cards that a variable names, in its order; the first number that is no card ends the list."""
    words = [word.strip() for word in environ[name].split(",")] if environ[name].strip() else []
    if any(not word.lstrip("-").isdecimal() for word in words):
        return list(cards), f"{name} names cards that cannot be told apart here: all of them are counted"
    found: list[Card] = []
    for word in words:
        number = int(word[:9])
        if not 0 <= number < len(cards):
            break
        found += [cards[number]] if cards[number] not in found else []
    unlike = len({(card.name, card.total_mib) for card in cards}) > 1
    if unlike and cards[0].maker == "nvidia" and environ.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
        return found, f"{name} counts unlike cards by speed unless CUDA_DEVICE_ORDER is PCI_BUS_ID"
    return found, ""
