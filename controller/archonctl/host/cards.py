"""The catalogue of cards by name: memory, bandwidth, target and what runs on it (cards.toml)."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from archonctl.memory.interval import Interval

Maker = Literal["nvidia", "amd", "intel"]
UsableBasis = Literal["program", "driver"]

SAME_SHARE = 0.12
"""How far a stated memory may be from a card's for it to be that card: less than between any two that share a name."""

_OTHER = re.compile(r"\b(laptop|mobile|mig|[0-9]+[qcab])\b", re.IGNORECASE)
"""A card of another memory under the same name: for laptops, or a slice (MIG, a vGPU such as A10-4Q)."""


@dataclass(frozen=True, slots=True)
class CardModel:
    """One row of cards.toml, whose comments say what each field means; None is unknown."""

    name: str
    aliases: tuple[str, ...]
    maker: Maker
    bandwidth_bytes_s: int
    target: str
    source: str
    memory_mib: int | None = None
    usable_mib: int | None = None
    usable_basis: UsableBasis | None = None
    usable_source: str = ""
    pci: tuple[str, ...] = ()
    unified: bool = False
    ecc: bool = False

    @property
    def total_mib(self) -> int | None:
        """The best figure of what a program may have in all; None where nothing is known."""
        return None if self.programs_mib is None else int(self.programs_mib.best)

    @property
    def programs_mib(self) -> Interval | None:
        """What a program may have in all: the usable memory where it is published, else the nominal less a reserve.

        Without a figure for such a reserve the low end is 0: nothing is known but that it is no more.
        """
        if self.usable_mib is not None:
            return Interval.exact(self.usable_mib, "config")
        if self.memory_mib is None:
            return None
        rows = [row for row in _table()["reserve"] if row["maker"] == self.maker and row["ecc"] == self.ecc]
        low, best, high = (rows[0][key] for key in ("low", "best", "high")) if rows else (0.0, 0.0, 1.0)
        size = self.memory_mib
        return Interval(int(size * (1 - high)), int(size * (1 - best)), int(size * (1 - low)), "assumed")

    @property
    def kernels(self) -> tuple[str, ...]:
        """What runs on its target ("fp8", "marlin_int4", ...)."""
        return target_kernels(self.target) or ()


@cache
def all_cards() -> tuple[CardModel, ...]:
    """Every card, in the order of the table."""
    rows = _table()["card"]
    return tuple(
        CardModel(**{**row, "aliases": tuple(row["aliases"]), "pci": tuple(row.get("pci", ()))}) for row in rows
    )


@cache
def targets() -> Mapping[str, tuple[str, ...]]:
    """Kernels by compute capability, gfx target or Intel architecture."""
    return {name: tuple(row["kernels"]) for row in _table()["target"] for name in row["names"]}


def target_kernels(target: str) -> tuple[str, ...] | None:
    """What runs on a target; None for one that is not in the table."""
    return targets().get(target)


def matching_cards(name: str) -> tuple[CardModel, ...]:
    """The cards whose alias matches most of ``name``; several where the name does not tell them apart, none without.

    The words of an alias must stand in the name whole and in order, so "A100" is no A10 and "L40S" no L40; of several
    matches the one with most words, then most letters, wins.
    """
    words = _words(name)
    if _OTHER.search(name):
        return ()
    best, found = (0, 0), list[CardModel]()
    for card, aliases in _aliases():
        rank = max((_rank(alias) for alias in aliases if _in_order(alias, words)), default=(0, 0))
        if rank > best:
            best, found = rank, [card]
        elif rank == best and rank > (0, 0):
            found.append(card)
    return tuple(found)


def find_card(name: str, memory_mib: int | None = None) -> CardModel | None:
    """The one card that is meant; None where none or several are. A known memory tells those of one name apart."""
    return _nearest(matching_cards(name), memory_mib)


def find_pci_card(vendor_device: str, memory_mib: int | None = None) -> CardModel | None:
    """The card with this PCI id ("1002:744c") and, where several have it, about this memory."""
    return _nearest(tuple(card for card in all_cards() if vendor_device.lower() in card.pci), memory_mib)


def _nearest(cards: tuple[CardModel, ...], memory_mib: int | None) -> CardModel | None:
    if memory_mib is not None:
        cards = tuple(
            c for c in cards if c.total_mib is None or abs(c.total_mib - memory_mib) <= SAME_SHARE * memory_mib
        )
    return cards[0] if len(cards) == 1 else None


@cache
def _aliases() -> tuple[tuple[CardModel, tuple[tuple[str, ...], ...]], ...]:
    return tuple((card, tuple(_words(alias) for alias in (card.name, *card.aliases))) for card in all_cards())


def _words(text: str) -> tuple[str, ...]:
    """Words in lower case, in the ways that people and drivers write them: RTX4090, 80 GB, SXM4, MI 300X, HBM3."""
    plain = re.sub(r"([0-9]+)[ -]?(gib|gb|g)\b", r"\1gb", text.lower()[:200])
    plain = re.sub(r"\b(rtx|gtx|rx|arc)[ -]?(?=[a-z]?[0-9])", r"\1 ", plain)
    plain = re.sub(r"\b(mi)[ -](?=[0-9])", r"\1", plain)
    plain = re.sub(r"\b(sxm|hbm)[0-9]\w*", r"\1", plain)
    words = re.findall(r"[a-z0-9]+", plain.replace("(r)", " ").replace("(tm)", " "))
    return tuple(word for word in words if word not in ("nvidia", "amd", "intel", "tesla", "geforce", "graphics"))


def _in_order(alias: tuple[str, ...], words: tuple[str, ...]) -> bool:
    rest = iter(words)
    return all(word in rest for word in alias)


def _rank(alias: tuple[str, ...]) -> tuple[int, int]:
    return len(alias), sum(map(len, alias))


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads(files("archonctl.host").joinpath("cards.toml").read_text("utf-8"))
