"""Time spans of unit files. Source: systemd.time(7)."""

from __future__ import annotations

import math
import re

_UNITS = {
    "us": 1e-6, "usec": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "msec": 1e-3,
    "": 1.0, "s": 1.0, "sec": 1.0, "second": 1.0, "seconds": 1.0,
    "m": 60.0, "min": 60.0, "minute": 60.0, "minutes": 60.0,
    "h": 3600.0, "hr": 3600.0, "hour": 3600.0, "hours": 3600.0,
    "d": 86_400.0, "day": 86_400.0, "days": 86_400.0, "w": 604_800.0, "week": 604_800.0, "weeks": 604_800.0,
    "M": 2_629_800.0, "month": 2_629_800.0, "months": 2_629_800.0, "y": 31_557_600.0, "year": 31_557_600.0,
    "years": 31_557_600.0,
}  # fmt: skip
_PART = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-zµμ]*)\s*")


def seconds(text: str) -> float | None:
    """A time span in seconds; ``infinity`` is infinite; None for what systemd would not take."""
    text = text.strip()
    if text == "infinity":
        return math.inf
    at, total = 0, 0.0
    while at < len(text):
        found = _PART.match(text, at)
        if not found or found[2] not in _UNITS:
            return None
        total += float(found[1]) * _UNITS[found[2]]
        at = found.end()
    return total if text else None


def in_words(value: float) -> str:
    """A span for people: ``1.5 s``, ``90 s``, ``15 min``."""
    if math.isinf(value):
        return "no limit"
    if value >= 600:
        return f"{value / 60:,.0f} min"
    return f"{value:g} s"
