"""The table of endpoints in ``archonctl watch``: as many columns as there is room for, the worst first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from archonctl.cli.watch_bars import Line, Span, clipped
from archonctl.observe.watch import Watched

_WORST = ("broken", "down", "half done", "no evidence", "unverified", "", "holds")


@dataclass(frozen=True, slots=True)
class Mark:
    """How a verdict looks."""

    glyph: str
    styles: tuple[str, ...]


_MARKS = {
    "holds": ("✓", "+", ("green",)),
    "broken": ("✗", "X", ("bold", "red")),
    "down": ("✗", "X", ("bold", "red")),
    "half done": ("!", "!", ("yellow",)),
}


def mark_of(verdict: str, *, unicode: bool) -> Mark:
    """Glyph and colour of a verdict."""
    fine, coarse, styles = _MARKS.get(verdict, ("?", "?", ("yellow",)))
    return Mark(fine if unicode else coarse, styles)


def ranked(endpoints: Sequence[Watched]) -> list[Watched]:
    """The worst first, then by name."""
    return sorted(endpoints, key=lambda each: (_WORST.index(each.verdict) if each.verdict in _WORST else 0, each.name))


@dataclass(frozen=True, slots=True)
class Column:
    """One column: ``rank`` 0 is shown first of all."""

    title: str
    rank: int
    right: bool
    cell: Callable[[Watched], Span]
    width: int = 0


def heading(order: Sequence[Watched], width: int, *, silent_s: float, unicode: bool) -> tuple[list[Column], Line]:
    """The columns that there is room for, and their titles."""
    sized = [_sized(column, order) for column in _columns(silent_s, unicode=unicode)]
    left, chosen = width - 2, set[str]()
    for column in sorted(sized, key=lambda each: each.rank):
        size = column.width + (2 if chosen else 0)
        if chosen and size > left:
            continue
        chosen.add(column.title)
        left -= size
    shown = [column for column in sized if column.title in chosen]
    titles = "  ".join(_padded(column.title, column) for column in shown)
    return shown, clipped(((f"  {titles}", ("dim",)),), width, unicode=unicode)


def table_row(each: Watched, columns: Sequence[Column], *, chosen: bool, unicode: bool) -> Line:
    """One endpoint."""
    spans: list[Span] = [((("▸" if unicode else ">") if chosen else " ") + " ", ("bold",))]
    for number, column in enumerate(columns):
        text, styles = column.cell(each)
        bold = ("bold",) if chosen and number == 0 else ()
        spans += [("  " if number else "", ()), (_padded(text, column), (*bold, *styles))]
    return tuple(spans)


def _sized(column: Column, order: Sequence[Watched]) -> Column:
    widest = max((len(column.cell(each)[0]) for each in order), default=0)
    return Column(column.title, column.rank, column.right, column.cell, min(24, max(len(column.title), widest)))


def _padded(text: str, column: Column) -> str:
    text = text if len(text) <= column.width else text[: column.width - 1] + "~"
    return text.rjust(column.width) if column.right else text.ljust(column.width)


def _columns(silent_s: float, *, unicode: bool) -> list[Column]:
    def engine(each: Watched, text: str) -> Span:
        fresh = each.engine_age_s is not None and each.engine_age_s <= silent_s
        return (text, ()) if fresh else ("-", ("dim",))

    def state(each: Watched) -> Span:
        mark = mark_of(each.verdict, unicode=unicode)
        return f"{mark.glyph} {each.verdict or 'not seen'}", mark.styles

    def kv(each: Watched) -> Span:
        share = each.kv_usage
        styles = () if share is None or share < 0.8 else ("yellow",) if share < 0.95 else ("red",)
        text, dim = engine(each, "-" if share is None else f"{share:.0%}")
        return text, dim or styles

    return [
        Column("endpoint", 0, False, lambda each: (each.name, ())),
        Column("verdict", 1, False, state),
        Column("age", 2, True, lambda each: (age(each.evidence_age_s), ())),
        Column("contract", 7, True, _contract),
        Column("spare", 6, True, _spare),
        Column("KV", 3, True, kv),
        Column("run", 4, True, lambda each: engine(each, "-" if each.running is None else f"{each.running:,}")),
        Column("wait", 5, True, lambda each: engine(each, "-" if each.waiting is None else f"{each.waiting:,}")),
        Column("unit", 8, False, _unit),
        Column("restarts", 9, True, _restarts),
    ]


def _contract(each: Watched) -> Span:
    known = each.seqs is not None and each.len_tokens is not None
    return (f"{each.seqs:,} x {each.len_tokens:,}" if known else "?"), ()


def _spare(each: Watched) -> Span:
    """Live capacity over the contract."""
    if each.live_tokens is None or not each.contract_tokens:
        return "?", ("dim",)
    over = each.live_tokens / each.contract_tokens - 1
    styles = ("red",) if over < 0 else ("yellow",) if over < (each.margin or 0.0) else ()
    return (f"{over:+.1%}" if over < 10 else ">10 x"), styles


def _unit(each: Watched) -> Span:
    return each.unit or "?", ("red",) if each.unit == "failed" else () if each.unit == "active" else ("yellow",)


def _restarts(each: Watched) -> Span:
    return ("?" if each.restarts is None else str(each.restarts)), ("yellow",) if each.restarts else ()


def age(seconds: float | None) -> str:
    """``42s``, ``7m``, ``3h``, ``12d``; "-" where there is none."""
    if seconds is None:
        return "-"
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= size * 2 or (unit == "m" and seconds >= size):
            return f"{int(seconds // size)}{unit}"
    return f"{int(seconds)}s"
