"""A declaration with some of its values changed: what levers, solvers and sweeps try."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from archonctl.deployment.schema import Endpoint, KnobValue

Change = Mapping[str, KnobValue]
"""Dotted declaration keys and their new values, as in ``Lever.set``."""


@dataclass(frozen=True, slots=True)
class Variable:
    """A quantity that a plan can be solved for, and which of its values is the best.

    ``wanted``: ``most`` of what is promised, ``least`` of what is paid, ``first`` of ``choices``, which stand in the
    order of preference. Values are ``low`` to ``high``, in steps of ``step``. ``mirrors`` are knobs that must follow
    where they are declared, since they limit the same thing.
    """

    key: str
    wanted: Literal["most", "least", "first"]
    unit: str = ""
    low: float = 0
    high: float = 0
    step: float = 1
    choices: tuple[KnobValue, ...] = ()
    mirrors: tuple[str, ...] = ()
    lever: bool = True
    """True where the engine has no lever of its own that moves it; then its price in words:"""
    costs: str = ""
    quality: str = ""


SEQS = Variable("contract.seqs", "most", "sequences", 1, 65_536)
LEN = Variable("contract.len", "most", "tokens", 16, 100_000_000)
"""The promise itself, within the bounds of the declaration's schema."""


def changed(endpoint: Endpoint, change: Change) -> Endpoint:
    """The same declaration with other values for keys of ``contract``, ``engine.knobs`` and ``engine.env``.

    The values are taken as they are; a declaration that is read from a file is checked, this one is not again.
    """
    contract = {key.partition(".")[2]: value for key, value in change.items() if key.startswith("contract.")}
    knobs = {key.split(".", 2)[2]: value for key, value in change.items() if key.startswith("engine.knobs.")}
    env = {key.split(".", 2)[2]: str(value) for key, value in change.items() if key.startswith("engine.env.")}
    update: dict[str, object] = {}
    if contract:
        update["contract"] = endpoint.contract.model_copy(update=contract)
    if knobs or env:
        engine = {"knobs": {**endpoint.engine.knobs, **knobs}, "env": {**endpoint.engine.env, **env}}
        update["engine"] = endpoint.engine.model_copy(update=engine)
    return endpoint.model_copy(update=update)


def spelt(endpoint: Endpoint, knob: str, aliases: Mapping[str, str]) -> str:
    """The dotted key of a knob, in the spelling that the declaration has for it."""
    for key in endpoint.engine.knobs:
        name = key.replace("_", "-")
        if aliases.get(name, name) == knob:
            return f"engine.knobs.{key}"
    return f"engine.knobs.{knob}"


def mirrored(endpoint: Endpoint, knobs: tuple[str, ...], aliases: Mapping[str, str]) -> tuple[str, ...]:
    """The dotted keys of those of ``knobs`` that are declared."""
    keys = (spelt(endpoint, knob, aliases) for knob in knobs)
    return tuple(key for key in keys if key.removeprefix("engine.knobs.") in endpoint.engine.knobs)
