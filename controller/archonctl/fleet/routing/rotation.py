"""Who is in rotation, and with which weight. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from archonctl.errors import DeclarationError, GateRefusal
from archonctl.fleet.backends import Backend
from archonctl.fleet.routing.seen import endpoints_of

LARGEST_WEIGHT = 1000
"""Weights are proportions; larger ones only slow down a round of nginx's smooth weighted round robin."""


@dataclass(frozen=True, slots=True)
class Member:
    """A backend of a rotation. ``weight`` is in proportion to its verified capacity; 0: out of rotation."""

    backend: Backend
    weight: int

    @property
    def is_in(self) -> bool:
        """True if requests go there."""
        return self.weight > 0


@dataclass(frozen=True, slots=True)
class Rotation:
    """All that serve one endpoint, those out of rotation too."""

    endpoint: str
    members: tuple[Member, ...]

    @property
    def serving(self) -> tuple[Member, ...]:
        """Those that requests go to."""
        return tuple(each for each in self.members if each.is_in)

    @property
    def out(self) -> tuple[Member, ...]:
        """The others."""
        return tuple(each for each in self.members if not each.is_in)

    @property
    def is_broken(self) -> bool:
        """True if everything that serves it is known not to hold."""
        return all(each.backend.verified is False for each in self.members)


def rotations(
    backends: Sequence[Backend], *, include_unverified: bool = False, force: bool = False
) -> tuple[Rotation, ...]:
    """The rotation of every endpoint.

    What is broken is out. What is unknown is out too, unless ``include_unverified``: it gets the least weight then.
    An endpoint without a member of which something is unknown is refused: it may serve, and the file that is there may
    be better; ``force`` takes it. Where everything is known to be broken, nobody is in.

    Raises GateRefusal ``fleet-route-empty``, DeclarationError ``fleet-route-address``.
    """
    found = tuple(
        _rotation(name, members, include_unverified=include_unverified)
        for name, members in endpoints_of(backends).items()
    )
    if not force:
        _refuse_unknown(found)
    return found


def _rotation(name: str, backends: Sequence[Backend], *, include_unverified: bool) -> Rotation:
    chosen = [each for each in backends if each.verified or (each.verified is None and include_unverified)]
    for each in chosen:
        if not each.address:
            raise DeclarationError(
                "fleet-route-address",
                f"no address of {name} on {each.host} is known that a router on another host reaches",
                where=f"archon_route of {each.host}",
                hint=f"it listens on loopback: set the host variable archon_route: {{{name}: ADDRESS:PORT}}",
            )
    sizes = [size for each in chosen if (size := _size(each))]
    least = min(sizes, default=1)
    whole = math.gcd(*sizes) if sizes else 1
    largest = max(sizes, default=1)
    scale = whole if largest // whole <= LARGEST_WEIGHT else largest / LARGEST_WEIGHT
    weights = {id(each): max(1, round((_size(each) or least) / scale)) for each in chosen}
    return Rotation(name, tuple(Member(each, weights.get(id(each), 0)) for each in backends))


def _size(backend: Backend) -> int:
    """Tokens that it holds at once, as verified; 0 where unknown."""
    if backend.capacity_tokens:
        return backend.capacity_tokens
    return (backend.capacity_seqs or 0) * (backend.capacity_len or 0)


def _refuse_unknown(found: Sequence[Rotation]) -> None:
    empty = [each for each in found if not each.serving and not each.is_broken]
    if found and not empty:
        return
    message, hint = "there is no endpoint on any host", "does the inventory have the right hosts?"
    if empty:
        out = sorted((member.backend for member in empty[0].out), key=lambda each: each.verified is not None)
        why = "; ".join(f"{each.host}: {each.reason or each.state}" for each in out[:4])
        message = f"nothing that serves {', '.join(each.endpoint for each in empty[:4])} is verified ({why})"
        hint = "archonctl fleet status says more; --include-unverified takes what is unknown"
    raise GateRefusal(
        "fleet-route-empty",
        f"{message}: a rotation without members would answer nobody, so nothing was written",
        hint=f"{hint}; --force writes it as it is",
    )
