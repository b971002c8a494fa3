"""How much memory was missing, and on which card, by the words of a line. The rows are data."""

from __future__ import annotations

import functools
import re
import tomllib
from dataclasses import dataclass
from importlib.resources import files

_UNITS = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_MOST_BYTES = 1 << 60


@dataclass(frozen=True, slots=True)
class Amount:
    """What a line says. ``card`` is None where it names none; ``at_most``: it may have been less."""

    bytes: int
    card: int | None = None
    at_most: bool = False


@functools.cache
def _rows() -> tuple[tuple[re.Pattern[str], bool], ...]:
    text = files("archonctl.observe").joinpath("amounts.toml").read_text(encoding="utf-8")
    return tuple((re.compile(row["pattern"]), row.get("whole", False)) for row in tomllib.loads(text)["amount"])


def amount_in(text: str) -> Amount | None:
    """The shortage that a line states; None where it states none, or one that cannot be."""
    for pattern, whole in _rows():
        if (found := pattern.search(text)) is None:
            continue
        said = found.groupdict()
        by = _bytes(said, "by")
        want, have = _bytes(said, "want"), _bytes(said, "have")
        if by is None and want is not None and have is not None:
            by = want - have
        if by is not None and 0 < by < _MOST_BYTES:
            return Amount(by, int(said["card"]) if said.get("card") else None, whole)
    return None


def _bytes(said: dict[str, str | None], name: str) -> int | None:
    figure, unit = said.get(name), _UNITS.get(said.get(f"{name}_unit") or "")
    if figure is None or unit is None:
        return None
    try:
        return int(float(figure) * unit)
    except (ValueError, OverflowError):
        return None
