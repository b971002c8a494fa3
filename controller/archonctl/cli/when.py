"""A moment as a person types it."""

from __future__ import annotations

import argparse
import re
import time
from datetime import datetime

_AGO = re.compile(r"-?(?P<number>\d{1,6})(?P<unit>min|h|d|w)")
_SECONDS = {"min": 60, "h": 3600, "d": 86_400, "w": 604_800}


def moment(text: str) -> float:
    """Unix time of ``-7d``, ``12h`` (so long ago) or ``2026-01-31[T12:00[:00][+01:00]]``, as an option's type."""
    if found := _AGO.fullmatch(text):
        return time.time() - int(found["number"]) * _SECONDS[found["unit"]]
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        raise argparse.ArgumentTypeError(f"expected 7d, 12h or 2026-01-31, got {text[:40]!a}") from None
