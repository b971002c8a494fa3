"""The cheap test before the grammar: which lines of a block can hold anything of interest.

Two steps. Coarse: a handful of short markers, found with ``bytes.find`` over a whole block (a block of noise costs
one scan per marker). Fine: one regular expression of all literals, tried on the lines that a marker hit.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence


def fewest(markers: Iterable[str]) -> tuple[bytes, ...]:
    """Markers without those that contain another one."""
    unique = sorted(set(markers), key=len)
    kept: list[str] = []
    for marker in unique:
        if not any(other in marker for other in kept):
            kept.append(marker)
    return tuple(marker.encode() for marker in kept)


class Sieve:
    """Tells lines of interest from noise. ``markers`` must be such that each literal contains one of them."""

    def __init__(self, markers: Iterable[str], literals: Iterable[str]) -> None:
        self.markers = fewest(markers)
        self._fine = re.compile(b"|".join(re.escape(lit.encode()) for lit in sorted(set(literals), key=len)))

    def wants(self, line: bytes) -> bool:
        """True if the line may match a row of the grammar."""
        return any(marker in line for marker in self.markers) and self._fine.search(line) is not None

    def fine(self, line: bytes) -> bool:
        """The second step alone, for a line that a marker hit."""
        return self._fine.search(line) is not None


class Hits:
    """Starts of the lines of one block that hold a marker, in order."""

    def __init__(self, block: bytes, markers: Sequence[bytes]) -> None:
        self._block = block
        self._next = dict.fromkeys(markers, -1)

    def after(self, cursor: int) -> int:
        """Start of the first line at or after ``cursor`` (itself the start of a line) with a marker; -1 for none."""
        end = len(self._block)
        best = end
        for marker, position in self._next.items():
            if position < cursor:
                found = self._block.find(marker, cursor)
                self._next[marker] = found if found >= 0 else end
            best = min(best, self._next[marker])
        if best == end:
            return -1
        return max(cursor, self._block.rfind(b"\n", cursor, best) + 1)
