"""Bars and lines of ``archonctl watch``: spans of text with styles, measured in cells of a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size

from archonctl.cli.harmless import harmless
from archonctl.observe.watch import Memory

Span = tuple[str, tuple[str, ...]]
Line = tuple[Span, ...]

_GIB = float(1 << 30)


@dataclass(frozen=True, slots=True)
class Glyphs:
    """What is drawn with."""

    weights: str
    kv: str
    other: str
    beyond: str
    free: str
    mark: str
    rule: str
    more: str


GLYPHS = {
    True: Glyphs("█", "▓", "▒", "░", "·", "┃", "─", "…"),
    False: Glyphs("#", "=", "%", "+", ".", "|", "-", "~"),
}
_CLASSES = (("weights", "blue", ("weights",)), ("KV", "green", ("kv_cache", "ddr_cache")))
"""Drawn apart; every other class is "other"."""


@dataclass(frozen=True, slots=True)
class Bars:
    """Draws with one set of glyphs."""

    glyphs: Glyphs

    def legend(self, places: Sequence[Memory]) -> tuple[Span, ...]:
        """What the glyphs of the memory bars that are there mean."""
        kinds = [kind for each in places for kind in _kinds(each, self.glyphs)]
        shown = {label: (glyph, colour) for label, glyph, colour, _ in kinds}
        spans: list[Span] = []
        for label, (glyph, colour) in shown.items():
            spans += [(glyph, (colour,)), (f" {label}  ", ("dim",))]
        if any(each.used_bytes is not None for each in places):
            spans += [(self.glyphs.mark, ("bold",)), (" used now", ("dim",))]
        return tuple(spans)


def plain(line: Line) -> str:
    """The text alone."""
    return "".join(text for text, _ in line)


def clipped(line: Line, width: int, *, unicode: bool) -> Line:
    """The line in at most ``width`` cells; what a terminal would obey is shown, and what is cut ends with a mark."""
    more = GLYPHS[unicode].more
    found: list[Span] = []
    left = width
    for text, styles in line:
        shown = harmless(text).replace("\n", " ").replace("\t", " ")
        shown = shown if unicode or shown.isascii() else shown.encode("ascii", "backslashreplace").decode()
        size = cell_len(shown)
        if size > left:
            if left > 0:
                found.append((set_cell_size(shown, left - 1) + more, styles))
            break
        if shown:
            found.append((shown, styles))
        left -= size
    return tuple(found)


def padded(line: Line, width: int) -> Line:
    """The line in exactly ``width`` cells, so that it covers what was there before."""
    return (*line, (" " * max(0, width - cell_len(plain(line))), ()))


def gib(value: float | None) -> str:
    """GiB with a tenth."""
    return "?" if value is None else f"{value / _GIB:,.1f}"


def memory_bar(each: Memory, width: int, bars: Bars) -> Line:
    """What is planned by class, what is used beyond that, a mark at what is used now; ``width`` without brackets."""
    total = each.total_bytes or 1.0
    kinds = _kinds(each, bars.glyphs)
    return _bar([(glyph, (colour,), value) for _, glyph, colour, value in kinds], total, each.used_bytes, width, bars)


def _kinds(each: Memory, glyphs: Glyphs) -> list[tuple[str, str, str, float]]:
    """Label, glyph, colour and bytes of what fills a bar."""
    left = {part.cls for part in each.planned} - {cls for _, _, classes in _CLASSES for cls in classes}
    rows = [
        (label, glyph, colour, sum(part.bytes for part in each.planned if part.cls in classes))
        for (label, colour, classes), glyph in zip(_CLASSES, (glyphs.weights, glyphs.kv), strict=True)
    ]
    rows.append(("other", glyphs.other, "magenta", sum(part.bytes for part in each.planned if part.cls in left)))
    beyond = (each.used_bytes or 0.0) - sum(value for *_, value in rows)
    rows.append(("not planned", glyphs.beyond, "yellow", beyond))
    return [row for row in rows if row[3] > 0]


def tokens_bar(have: int, need: int, width: int, bars: Bars, styles: tuple[str, ...], *, solid: bool) -> Line:
    """Capacity, with a mark at what is promised."""
    scale = max(have, need) * 1.02
    glyph = bars.glyphs.weights if solid else bars.glyphs.beyond
    return _bar([(glyph, styles, float(have))], scale, float(need), width, bars)


def usage_bar(share: float, width: int, bars: Bars) -> Line:
    """A share of 1."""
    style = "red" if share >= 0.95 else "yellow" if share >= 0.8 else "green"
    return _bar([(bars.glyphs.weights, (style,), min(1.0, max(0.0, share)))], 1.0, None, width, bars)


def _bar(
    parts: Sequence[tuple[str, tuple[str, ...], float]], total: float, mark: float | None, width: int, bars: Bars
) -> Line:
    """``[####====%%..|...]``; nothing where there is no room."""
    if width < 4:
        return ()
    cells: list[Span] = []
    seen = 0.0
    for glyph, styles, value in parts:
        seen += value
        upto = min(width, round(width * seen / total))
        cells += [(glyph, styles)] * (upto - len(cells))
    cells += [(bars.glyphs.free, ("dim",))] * (width - len(cells))
    if mark is not None:
        cells[max(0, min(width - 1, round(width * mark / total) - 1))] = (bars.glyphs.mark, ("bold",))
    return (("[", ("dim",)), *_joined(cells), ("]", ("dim",)))


def _joined(cells: Sequence[Span]) -> list[Span]:
    found: list[Span] = []
    for text, styles in cells:
        if found and found[-1][1] == styles:
            found[-1] = (found[-1][0] + text, styles)
        else:
            found.append((text, styles))
    return found
