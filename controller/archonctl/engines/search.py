"""Looking for the largest value that still works: what every engine's levers do."""

from __future__ import annotations

from collections.abc import Callable


def largest(top: int, holds: Callable[[int], bool]) -> int:
    """The largest n from 1 to ``top`` for which ``holds``, taking it to be monotone; 0 if there is none."""
    low, high = 0, max(top, 0)
    while low < high:
        middle = (low + high + 1) // 2
        if holds(middle):
            low = middle
        else:
            high = middle - 1
    return low
