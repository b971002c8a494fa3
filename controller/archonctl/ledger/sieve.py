"""The cheap tests before the grammar: which lines of a block can hold anything of interest.

1. Seen before: a line that differs from a known line of noise in its digits alone is noise (one set operation a piece).
2. Coarse: a few short markers, found with ``bytes.find`` over all that is left; each marker costs a scan.
3. Fine: the literals that belong to the marker that was hit.

Literals and markers hold no digits, so the first test changes nothing for the other two.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

PIECE_BYTES = 1 << 17
_QUIET_LINES = 8192
_QUIET_BYTES = 512
_RETRY_PIECES = 32
"""Pieces for which the first test is left out after it was of no use."""

_BLIND = bytes.maketrans(b"0123456789", b"0000000000")


def pieces(block: bytes) -> Iterator[bytes]:
    """Cut a block at line ends into pieces of about ``PIECE_BYTES``."""
    start, end = 0, len(block)
    while start < end:
        stop = end if end - start <= PIECE_BYTES else block.rfind(b"\n", start, start + PIECE_BYTES) + 1
        if stop <= start:  # a line longer than a piece
            stop = block.find(b"\n", start) + 1 or end
        yield block[start:stop]
        start = stop


def blind(line: bytes) -> bytes:
    """A line with every digit as 0."""
    return line.translate(_BLIND)


class Sieve:
    """Tells lines of interest from noise.

    Each pair is (coarse, literal): every line of interest holds both. Coarse strings that hold one of ``shorts`` share
    it as their marker.
    """

    def __init__(self, pairs: Iterable[tuple[str, str]], shorts: Sequence[str]) -> None:
        groups: dict[str, set[str]] = {}
        for coarse, literal in pairs:
            marker = next((m for m in groups if m in coarse), None)
            marker = marker or next((short for short in shorts if short in coarse), coarse)
            groups.setdefault(marker, set()).add(literal)
        self.groups = {m.encode(): tuple(sorted(lit.encode() for lit in lits)) for m, lits in groups.items()}
        self._quiet: set[bytes] = set()
        self._skip = 0

    def wants(self, line: bytes) -> bool:
        """True if the line may match a row of the grammar."""
        for marker, literals in self.groups.items():
            if marker in line:
                for literal in literals:
                    if literal in line:
                        return True
        return False

    def wanted(self, piece: bytes) -> frozenset[bytes]:
        """The lines of a piece that may match, blind to digits (see ``blind``)."""
        if self._skip:
            self._skip -= 1
            return frozenset(map(blind, self._hits(piece)))
        keys = set(blind(piece).split(b"\n"))
        new = keys - self._quiet
        wanted = frozenset(self._hits(b"\n".join(new))) if new else frozenset()
        self._learn(new - wanted, of=len(keys))
        return wanted

    def _learn(self, noise: set[bytes], of: int) -> None:
        """Remember lines of noise; give the first test up for a while where lines do not repeat."""
        if len(noise) > of // 2 + 8:
            self._skip = _RETRY_PIECES
        if len(self._quiet) + len(noise) > _QUIET_LINES:
            self._quiet.clear()
        if len(noise) <= _QUIET_LINES:
            self._quiet.update(line for line in noise if len(line) <= _QUIET_BYTES)

    def _hits(self, piece: bytes) -> Iterator[bytes]:
        """Lines that hold a marker and one of its literals; one may come several times."""
        for marker, literals in self.groups.items():
            at = piece.find(marker)
            while at >= 0:
                stop = piece.find(b"\n", at)
                stop = stop if stop >= 0 else len(piece)
                line = piece[piece.rfind(b"\n", 0, at) + 1 : stop]
                if any(literal in line for literal in literals):
                    yield line
                at = piece.find(marker, stop)
