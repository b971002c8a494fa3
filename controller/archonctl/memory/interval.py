"""A number that knows how exact it is and where it came from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Source = Literal["config", "header", "log", "sysfs", "declared", "assumed", "computed"]

MIB = 1024 * 1024
GIB = 1024 * MIB


@dataclass(frozen=True, slots=True)
class Interval:
    """``low <= best <= high`` in one unit; equal ends mean exact.

    A figure printed as "4.20 GiB" is ``[4.195, 4.205]``: comparisons must use it as that interval.
    """

    low: float
    best: float
    high: float
    source: Source = "computed"

    def __post_init__(self) -> None:
        if not self.low <= self.best <= self.high:
            raise ValueError(f"not an interval: {self.low} <= {self.best} <= {self.high}")

    @classmethod
    def exact(cls, value: float, source: Source = "computed") -> Interval:
        """A figure without rounding."""
        return cls(value, value, value, source)

    @classmethod
    def rounded(cls, text: str, scale: float = 1.0, source: Source = "log") -> Interval:
        """A printed decimal such as ``"4.20"`` times ``scale``; half a unit in the last place either way.

        Thousands separators are taken out. Raises ValueError if ``text`` is no number.
        """
        digits = text.replace(",", "").replace("_", "").strip()
        value = float(digits)
        places = len(digits.partition(".")[2]) if "." in digits else 0
        half = 0.5 * 10.0**-places if places else 0.0
        return cls((value - half) * scale, value * scale, (value + half) * scale, source)

    @property
    def is_exact(self) -> bool:
        """True if the ends coincide."""
        return self.low == self.high

    def contains(self, value: float) -> bool:
        """True if ``value`` could be the true figure."""
        return self.low <= value <= self.high
