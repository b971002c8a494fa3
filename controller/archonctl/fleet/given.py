"""What an endpoint is given on a host beside its declaration: the variables that show it its cards."""

from __future__ import annotations

from archonctl.fleet.inventory import Assigned
from archonctl.host.profile import Host
from archonctl.host.visible import visible_environment


def settings(assigned: Assigned, host: Host) -> dict[str, str]:
    """Values by dotted key, as ``--set`` takes them; empty where it has all cards, or nobody said which."""
    if assigned.cards is None:
        return {}
    mine = [card for card in host.cards if card.index in assigned.cards]
    return {f"engine.env.{name}": value for name, value in visible_environment(mine, host).items()}
