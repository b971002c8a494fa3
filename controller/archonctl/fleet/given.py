"""What an endpoint is given on a host beside its declaration, and whether that shows it the cards it is to lie on."""

from __future__ import annotations

from archonctl.deployment.schema import Endpoint
from archonctl.errors import ArchonError
from archonctl.findings import Finding, Place
from archonctl.fleet.host_variables import Assigned
from archonctl.fleet.knowledge import Hardware, Knowledge, Read
from archonctl.fleet.together import taken_mib
from archonctl.host.profile import Host
from archonctl.host.visible import visible_environment, visible_host


def settings(assigned: Assigned) -> dict[str, str]:
    """Values by dotted key, as ``--set`` takes them."""
    return {f"engine.env.{name}": text for name, text in assigned.env}


def showing(cards: tuple[int, ...] | None, host: Host) -> dict[str, str]:
    """The variables that show an engine these cards and no others; empty where that is all of them."""
    return visible_environment([card for card in host.cards if card.index in (cards or ())], host)


def cards_finding(
    assigned: Assigned, endpoint: Endpoint, hardware: Hardware, read: Read, knowledge: Knowledge
) -> Finding | None:
    """``fleet-cards-not-given`` where the engine, as it is shown its cards, would lie on others than it is to."""
    if assigned.cards is None:
        return None
    seen = tuple(card.index for card in visible_host(hardware.host, endpoint.engine.env).cards)
    try:
        taken = sorted(taken_mib(knowledge.plan(read, hardware, seen), hardware.host, seen))
    except ArchonError:
        return None  # told by the gate of the endpoint
    others = [index for index in taken if index not in assigned.cards]
    if not others:
        return None
    wanted = ", ".join(map(str, assigned.cards)) or "none"
    message = (
        f"{assigned.name} is to lie on cards {wanted}, and is shown {', '.join(map(str, seen))}: it would take "
        f"{', '.join(map(str, others))}"
    )
    words = ", ".join(f"{name}: {text!r}" for name, text in showing(assigned.cards, hardware.host).items())
    fix = f"env: {{{words}}} beside its cards in the inventory; fleet plan --out writes it"
    return Finding("fleet-cards-not-given", "error", message, Place(str(assigned.declaration)), fix)
