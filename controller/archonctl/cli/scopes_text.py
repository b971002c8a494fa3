"""Want, budget and margin of the host and of every card, as a table."""

from __future__ import annotations

from dataclasses import replace

from archonctl.cli.output import Output
from archonctl.memory.demand import Fit
from archonctl.memory.interval import MIB


def scopes_table(fits: tuple[Fit, ...], out: Output) -> list[str]:
    """One row a scope of which something is wanted; one for all cards of the same figures."""
    wanted = [fit for fit in fits if fit.want_bytes]
    if not wanted:
        return []
    rows = [("memory", "want", "budget", "margin MiB", "kept free", "")]
    rows += [_row(name, fit) for name, fit in _named(wanted)]
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    lines = []
    for number, row in enumerate(rows):
        cells = [row[0].ljust(widths[0]), *(row[column].rjust(widths[column]) for column in range(1, 5))]
        line = f"  {'  '.join(cells)}  {row[5]}".rstrip()
        if number:
            lines.append(out.paint(line, "red") if wanted and _is_short(row) else line)
        else:
            lines.append(out.paint(line, "dim"))
    return lines


def _is_short(row: tuple[str, ...]) -> bool:
    return row[3].startswith("-")


def _named(fits: list[Fit]) -> list[tuple[str, Fit]]:
    cards = [fit for fit in fits if fit.card is not None]
    if len(cards) > 1 and all(replace(fit, card=None) == replace(cards[0], card=None) for fit in cards):
        alone = [fit for fit in fits if fit.card is None]
        return [*((_name(fit), fit) for fit in alone), ("each card", cards[0])]
    return [(_name(fit), fit) for fit in fits]


def _name(fit: Fit) -> str:
    if fit.card is not None:
        return f"card {fit.card}"
    return "host" if fit.scope == "host" else "cards"


def _row(name: str, fit: Fit) -> tuple[str, str, str, str, str, str]:
    want = f"{-(-fit.want_bytes // MIB):,}"
    if not fit.is_known:
        return name, want, "unknown", "unknown", "", fit.reason
    margin = f"{fit.margin_bytes // MIB:+,}"
    return name, want, f"{fit.budget_bytes // MIB:,}", margin, f"{fit.headroom:.0%}", fit.reason
