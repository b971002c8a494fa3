"""The first gate: can an engine run this type of weights, and of cache, on this card? (kernels.toml)"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

ENGINES = ("vllm", "sglang", "llamacpp")
"""Engines with public kernels for public formats, in the order in which they are tried where a quant names none."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """One row of kernels.toml, whose comments say what each field means."""

    engine: str
    kinds: tuple[str, ...]
    kernel: str
    source: str
    minimum: str = ""
    below: str = ""
    gfx: tuple[str, ...] = ()
    intel: tuple[str, ...] = ()
    ram: bool = False
    weight_only: bool = False

    def covers(self, target: str) -> bool:
        """True if it runs on a compute capability, gfx target or Intel architecture; "" is no card at all."""
        if not target:
            return self.ram
        if target.startswith("gfx"):
            return target in self.gfx or "*" in self.gfx
        if target.startswith("xe"):
            return target in self.intel or "*" in self.intel
        at = _number(target)
        return bool(self.minimum) and _number(self.minimum) <= at and (not self.below or at < _number(self.below))

    def needs(self, maker: str = "") -> str:
        """What it asks of a card, in words; of a card of one maker, where it runs on any of that."""
        nvidia = f"compute capability {self.minimum}" + (f" to below {self.below}" if self.below else " or more")
        parts = {
            "nvidia": nvidia if self.minimum else "",
            "amd": ", ".join(self.gfx) if "*" not in self.gfx else "",
        }
        return parts.get(maker) or ", or ".join(filter(None, parts.values())) or "no card"


@dataclass(frozen=True, slots=True)
class Gate:
    """The answer of the gate. ``missing`` are the rows that do not cover the card; none: the type is not known."""

    kernel: Kernel | None
    missing: tuple[Kernel, ...] = ()

    @property
    def open(self) -> bool:
        """True if something covers the card."""
        return self.kernel is not None


@cache
def kernels() -> tuple[Kernel, ...]:
    """Every row of the table."""
    table: dict[str, Any] = tomllib.loads(files("archonctl.fit").joinpath("kernels.toml").read_text("utf-8"))
    return tuple(Kernel(**(row | {key: tuple(row.get(key, ())) for key in _LISTS})) for row in table["kernel"])


_LISTS = ("kinds", "gfx", "intel")


@cache
def gate(engine: str, kind: str, target: str, weight_only: bool = False) -> Gate:
    """Whether ``engine`` runs ``kind`` (a quant, or "kv:" and a cache dtype) on ``target``.

    A K/V pair of dtypes is two questions for the caller.
    """
    rows = tuple(row for row in kernels() if row.engine == engine and kind in row.kinds)
    found = next((row for row in rows if row.covers(target) and (weight_only or not row.weight_only)), None)
    return Gate(found, () if found else rows)


def knows(engine: str, kind: str) -> bool:
    """True if the table says anything of the type under the engine."""
    return any(row.engine == engine and kind in row.kinds for row in kernels())


def _number(text: str) -> tuple[int, int]:
    major, _, minor = text.partition(".")
    return int(major), int(minor or 0)
