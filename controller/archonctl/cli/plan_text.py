"""A plan on one screen: a bar a card, the classed table, contract against capacity, the way out."""

from __future__ import annotations

import textwrap
from dataclasses import replace

from archonctl.cli.output import Output
from archonctl.cli.scopes_text import scopes_table
from archonctl.engines.base import CardShare, Lever
from archonctl.memory.demand import Demand
from archonctl.memory.interval import MIB, Interval
from archonctl.plan.values import Plan

_WORD = {"holds": ("HOLDS", "green"), "short": ("SHORT", "red"), "unknown": ("UNKNOWN", "yellow")}
_MEANING = {
    "holds": "by the plan; the boot ledger and full-height requests decide",
    "short": "it would start, and refuse what was promised",
    "unknown": "nothing is claimed",
}
_UNSOUND = "it would not start as declared, or not keep what was promised"


def plan_text(plan: Plan, out: Output) -> str:
    """The whole screen as one string."""
    blocks = [
        [_headline(plan, out)],
        [line for names, card in _alike(plan.cards) for line in _card(names, card, out)],
        _table(plan.forecast.demands, out),
        scopes_table(plan.fits, out),
        _balance(plan, out),
        [out.paint(_wrapped("!", line, out), "yellow") for line in plan.reasons],
        [_lever(lever, number == 0, out) for number, lever in enumerate(plan.forecast.levers)],
        [out.paint(_wrapped("note", note, out), "dim") for note in plan.notes],
        [out.paint(_wrapped("not modelled", item, out), "dim") for item in plan.forecast.not_modelled],
        [_verdict(plan, out)],
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block)


def _headline(plan: Plan, out: Output) -> str:
    contract = plan.contract
    engine = f"{plan.engine} {plan.engine_version}".strip()
    promise = f"{contract.seqs:,} x {contract.len:,} tokens at once, {contract.kv_dtype} KV"
    return f"{out.paint(plan.endpoint, 'bold')}  {engine}  promises {out.paint(promise, 'bold')}"


def _alike(cards: tuple[CardShare, ...]) -> list[tuple[list[str], CardShare]]:
    """Cards with the same figures share a legend; each keeps its bar."""
    groups: list[tuple[list[str], CardShare]] = []
    for card in cards:
        for names, first in groups:
            if replace(card, index=first.index, name=first.name) == first:
                names.append(card.name)
                break
        else:
            groups.append(([card.name], card))
    return groups


def _card(names: list[str], card: CardShare, out: Output) -> list[str]:
    total = card.total_mib if card.total_mib is not None else card.ceiling_mib
    parts = [
        ("weights", card.slab_mib, "blue", "█", "#"),
        ("KV pool", card.pool_mib, "green", "▓", "="),
        ("outside", card.outside_mib, "magenta", "░", "%"),
    ]
    known = [
        (label, mib, colour, solid if out.unicode else ascii_) for label, mib, colour, solid, ascii_ in parts if mib
    ]
    widest = max(len(name) for name in names)
    lines = []
    for name in names:
        size = f"{_mib(total)} MiB" if total is not None else "size unknown"
        bar = "  " + _bar(known, total, out.width - widest - len(size) - 8, out) if total and known else ""
        lines.append(f"{out.paint(name.ljust(widest), 'bold')}  {size}{bar}")
    legend = [f"{out.paint(mark, colour)} {label} {_mib(mib)}" for label, mib, colour, mark in known]
    if total and known:
        legend.append(f"free {_mib(max(0.0, total - sum(mib for _, mib, _, _ in known)))}")
    if card.pool_needed_mib is not None:
        legend.append(f"the contract needs {_mib(card.pool_needed_mib)} of pool")
    lines.append("  " + "   ".join(legend))
    return lines


def _bar(parts: list[tuple[str, float, str, str]], total: float, width: int, out: Output) -> str:
    cells: list[str] = []
    drawn, seen = 0, 0.0
    for _, mib, colour, mark in parts:
        seen += mib
        upto = min(width, max(drawn + 1, round(width * seen / total)))
        cells.append(out.paint(mark * (upto - drawn), colour))
        drawn = upto
    return "[" + "".join(cells) + ("·" if out.unicode else ".") * (width - drawn) + "]"


def _table(demands: tuple[Demand, ...], out: Output) -> list[str]:
    if not demands:
        return []
    rows = [("class", "where", "dtype", "MiB", "from", "what")]
    rows += [(d.cls, where, d.dtype, _mib(d.bytes / MIB), d.source, d.detail) for where, d in _placed(demands)]
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    lines = []
    for number, row in enumerate(rows):
        cells = [row[c].rjust(widths[c]) if c == 3 else row[c].ljust(widths[c]) for c in range(5)]
        line = f"  {'  '.join(cells)}  {row[5]}".rstrip()
        lines.append(out.paint(line, "dim") if number == 0 else line)
    return lines


def _placed(demands: tuple[Demand, ...]) -> list[tuple[str, Demand]]:
    """One row for what every card is asked alike."""
    cards = {d.card for d in demands if d.card is not None}
    rows: list[tuple[str, Demand]] = []
    for demand in demands:
        if demand.card is None:
            rows.append((demand.scope, demand))
            continue
        alike = sum(d.card is not None and replace(d, card=demand.card) == demand for d in demands)
        if alike < len(cards) or len(cards) == 1:
            rows.append((f"card {demand.card}", demand))
        elif demand.card == min(cards):
            rows.append(("each card", demand))
    return rows


def _balance(plan: Plan, out: Output) -> list[str]:
    contract, tokens = plan.contract, plan.forecast.kv_tokens
    lines = [f"  contract  {contract.tokens:>13,} tokens  ({contract.seqs:,} x {contract.len:,})"]
    if contract.margin:
        lines.append(f"  + margin  {contract.tokens_with_margin:>13,} tokens  ({contract.margin:.2%} on top)")
    if tokens is None:
        lines.append(f"  capacity  {'unknown':>13}         ({plan.forecast.method})")
    else:
        sessions = f"{tokens.best / contract.len:.2f} sessions{_range(tokens)}"
        lines.append(f"  capacity  {int(tokens.best):>13,} tokens  ({sessions}; {plan.forecast.method})")
        left = int(tokens.best) - contract.tokens
        mib = [card.margin_mib for card in plan.cards if card.margin_mib is not None]
        rest = f", {min(mib):+,.0f} MiB of pool beyond the need with its margin" if mib else ""
        lines.append(f"  left over {out.paint(f'{left:>+13,}', 'green' if left >= 0 else 'red')} tokens{rest}")
        lines += [f"            {int(value.best):>13,} by {name}" for name, value in plan.forecast.methods.items()]
    need = plan.forecast.host_need
    if need.ttm_floor_mib is not None and need.ttm_floor_pages is not None:
        lines.append(f"  TTM floor {need.ttm_floor_mib:>13,} MiB     ({need.ttm_floor_pages:,} pages of pinned memory)")
    return lines


def _range(tokens: Interval) -> str:
    return "" if tokens.is_exact else f", {int(tokens.low):,} to {int(tokens.high):,}"


def _lever(lever: Lever, first: bool, out: Output) -> str:
    settings = "  ".join(f"--set {key}={value}" for key, value in lever.set.items())
    price = f"; costs {lever.costs}" if lever.costs else ""
    label = "smallest change" if first else "or"
    text = _wrapped(label, f"{lever.text}{price}", out)
    return "\n".join([text, *_price(lever, out), f"      {out.paint(settings, 'cyan')}"])


def _price(lever: Lever, out: Output) -> list[str]:
    """Tokens won, and what the words of the change leave out."""
    parts = []
    if lever.wins_tokens:
        parts.append(f"wins {lever.wins_tokens:,} tokens")
    if lever.slab_lost_mib:
        parts.append(f"{lever.slab_lost_mib:,.0f} MiB of slab a card")
    if lever.quality:
        parts.append(f"quality: {lever.quality}")
    if lever.throughput:
        parts.append(lever.throughput)
    lines = textwrap.wrap("; ".join(parts), out.width - 6, break_long_words=False)
    return [out.paint(f"      {line}", "dim") for line in lines]


def _wrapped(label: str, text: str, out: Output) -> str:
    lead = f"  {label}: " if len(label) > 1 else f"  {label} "
    return textwrap.fill(lead + text, out.width, subsequent_indent="    ", break_long_words=False)


def _verdict(plan: Plan, out: Output) -> str:
    word, colour = _WORD[plan.verdict]
    # Tokens that fall short show only under load; a refused knob or memory that is not there may end the boot itself.
    sound = not plan.forecast.problems and all(fit.verdict != "too_big" for fit in plan.fits)
    meaning = _MEANING[plan.verdict] if plan.verdict != "short" or sound else _UNSOUND
    return f"{out.paint(word, 'bold', colour)}  {meaning}"


def _mib(value: float | None) -> str:
    return "unknown" if value is None else f"{value:,.0f}"
