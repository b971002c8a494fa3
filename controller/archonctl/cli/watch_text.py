"""The screen of ``archonctl watch`` as lines: a pure function of what is known, the width and the height."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, tzinfo
from typing import NamedTuple

from archonctl.cli.output import Output
from archonctl.cli.watch_bars import GLYPHS, Bars, Line, Span, clipped, gib, memory_bar, plain, tokens_bar, usage_bar
from archonctl.cli.watch_notes import notes_lines
from archonctl.cli.watch_table import age, heading, mark_of, ranked, table_row
from archonctl.observe.watch import Memory, Snapshot, Watched

_PAGE = 10
ENGINE_SILENT_S = 10.0
"""An engine whose figures are older than that has none to show."""


@dataclass(frozen=True, slots=True)
class View:
    """How it is looked at. ``chosen`` is an endpoint's name, ``keys`` whether there is a keyboard to speak of."""

    host: str = ""
    chosen: str = ""
    unicode: bool = True
    keys: bool = True
    zone: tzinfo | None = None
    """None is the local zone."""


class Parts(NamedTuple):
    """Lines of each part, besides head and foot."""

    memory: int
    rows: int
    detail: int
    notes: int


def frame(seen: Snapshot, view: View, width: int, height: int) -> list[Line]:
    """Exactly ``height`` lines of at most ``width`` cells each."""
    order = ranked(seen.endpoints)
    chosen = next((each for each in order if each.name == view.chosen), order[0] if order else None)
    foot = [_foot(order, chosen, view, width)] if view.keys and height >= 8 else []
    parts = share(height - 1 - len(foot), len(seen.memory), len(order), len(seen.notes))
    bars = Bars(GLYPHS[view.unicode])
    lines = [_head(seen, view, width)]
    if parts.memory:
        lines += _memory(seen.memory, parts.memory, width, bars)
    lines += _table(seen, order, chosen, parts.rows, width, view)
    if parts.detail and chosen is not None:
        lines += _detail(chosen, seen.at, parts.detail, width, bars)
    if parts.notes:
        lines += [
            _rule("findings", width, bars),
            *notes_lines(seen, parts.notes - 1, width, view.zone, unicode=view.unicode),
        ]
    body = [clipped(line, width, unicode=view.unicode) for line in lines[: height - len(foot)]]
    body += [()] * (height - len(foot) - len(body))
    return body + foot


def share(room: int, places: int, endpoints: int, notes: int) -> Parts:
    """Divide the lines: some of each, then all endpoints, then the rest to the findings. Titles are counted in."""
    rows = min(1 + max(1, endpoints), 4, room)
    left = room - rows
    note_lines = min(1 + max(1, notes), 3, left) if left >= 2 else 0
    left -= note_lines
    memory = min(1 + places, left, max(2, room // 3)) if left >= 2 else 0
    left -= memory
    detail = min(6, left) if endpoints and left >= 4 else 0
    left -= detail
    more = min(left, max(0, endpoints - (rows - 1)))
    return Parts(memory, rows + more, detail, note_lines + left - more if note_lines else 0)


def natural_height(seen: Snapshot) -> int:
    """Lines in which everything has room, with at most a dozen findings."""
    return 1 + 1 + len(seen.memory) + 1 + max(1, len(seen.endpoints)) + 6 + 1 + min(12, max(1, len(seen.notes)))


def moved(view: View, seen: Snapshot, key: str) -> View:
    """The view after a key."""
    names = [each.name for each in ranked(seen.endpoints)]
    if not names:
        return view
    at = names.index(view.chosen) if view.chosen in names else 0
    steps = {"up": -1, "down": 1, "page up": -_PAGE, "page down": _PAGE, "first": -len(names), "last": len(names)}
    return replace(view, chosen=names[max(0, min(len(names) - 1, at + steps.get(key, 0)))])


def painted(line: Line, out: Output) -> str:
    """A line for a terminal."""
    return "".join(out.paint(text, *styles) if styles else text for text, styles in line)


def text_of(lines: Sequence[Line]) -> str:
    """Lines without colour."""
    return "\n".join(plain(line).rstrip() for line in lines)


def _rule(title: str, width: int, bars: Bars, *aside: Span) -> Line:
    shown = sum(len(text) for text, _ in aside)
    room = width - len(title) - 4 - (shown + 1 if aside else 0)
    if room < 2 and aside:
        return _rule(title, width, bars)
    line: list[Span] = [(f"{bars.glyphs.rule * 2} ", ("dim",)), (title, ("bold",)), (" ", ())]
    line.append((bars.glyphs.rule * max(0, room), ("dim",)))
    if aside:
        line += [(" ", ()), *aside]
    return tuple(line)


def _head(seen: Snapshot, view: View, width: int) -> Line:
    clock = datetime.fromtimestamp(seen.at, view.zone).strftime("%H:%M:%S")
    counts: dict[str, int] = {}
    for each in ranked(seen.endpoints):
        counts[each.verdict or "not seen"] = counts.get(each.verdict or "not seen", 0) + 1
    left: list[Span] = [("archonctl watch", ("bold",))] if width >= 60 else []
    if view.host and width >= 60:
        left.append((f"  {view.host}", ()))
    lead = "   " if left else ""
    if not seen.endpoints:
        left.append((f"{lead}{_nothing(seen, short=True)}", ("dim",)))
    for number, (word, count) in enumerate(counts.items()):
        left.append((f"{', ' if number else lead}{count} {word}", mark_of(word, unicode=view.unicode).styles))
    used = sum(len(text) for text, _ in left)
    gap = width - used - len(clock)
    return (*left, (" " * gap, ()), (clock, ("dim",))) if gap >= 1 else tuple(left)


def _nothing(seen: Snapshot, *, short: bool = False) -> str:
    if not seen.looked:
        return "looking ..."
    return "no endpoints" if short else "no endpoint is installed on this machine: archonctl apply NAME"


def _memory(places: Sequence[Memory], lines: int, width: int, bars: Bars) -> list[Line]:
    legend = bars.legend(places)
    shown = places if len(places) < lines else places[: lines - 1]
    label = max((len(_place(each)) for each in places), default=0)
    found: list[Line] = [_rule("memory", width, bars, *legend)]
    for each in shown:
        said = _said(each, width)
        room = width - label - len(said) - 5
        bar = memory_bar(each, room, bars) if room >= 6 and each.total_bytes else ()
        found.append(((f" {_place(each).ljust(label)} ", ("bold",)), *bar, (f" {said}", ())))
    return found


def _place(each: Memory) -> str:
    return "host" if each.place == "host" else f"card {each.place}"


def _said(each: Memory, width: int) -> str:
    planned = sum(part.bytes for part in each.planned)
    total = gib(each.total_bytes)
    if width < 60:
        return f"{gib(each.used_bytes)}/{total} GiB"
    plan = f", plan {gib(planned)}" if planned else ""
    if each.total_bytes is None and each.used_bytes is None:
        return f"unknown{plan}"
    used = f"used {gib(each.used_bytes)}" if each.used_bytes is not None else "use unknown"
    return f"{used} of {total} GiB{plan}".ljust(36 if width >= 100 else 34)


def _table(
    seen: Snapshot, order: Sequence[Watched], chosen: Watched | None, lines: int, width: int, view: View
) -> list[Line]:
    if not order:
        return [_rule("endpoints", width, Bars(GLYPHS[view.unicode])), ((f" {_nothing(seen)}", ("dim",)),)][:lines]
    room = max(1, lines - 1)
    at = order.index(chosen) if chosen is not None else 0
    first = max(0, min(at - room // 2, len(order) - room))
    shown = order[first : first + room]
    columns, title = heading(order, width, silent_s=ENGINE_SILENT_S, unicode=view.unicode)
    return [title, *(table_row(each, columns, chosen=each is chosen, unicode=view.unicode) for each in shown)][:lines]


def _detail(each: Watched, at: float, lines: int, width: int, bars: Bars) -> list[Line]:
    found = [
        _rule(each.name, width, bars, *_engine(each)),
        _capacity(each, width, bars),
        _use(each, width, bars),
        _evidence(each),
        _unit(each, at),
        _contract(each),
    ]
    return found[:lines]


def _engine(each: Watched) -> tuple[Span, ...]:
    said = f"{each.engine} {each.version}".strip() or "engine unknown"
    return ((f"{said}, release {each.release[:8] or 'unknown'}", ("dim",)),)


def _capacity(each: Watched, width: int, bars: Bars) -> Line:
    need, plan, live = each.contract_tokens, each.planned_tokens, each.live_tokens
    best = live if live is not None else plan[1] if plan else None
    what = "live" if live is not None else "planned"
    if need is None or best is None:
        return ((" capacity  ", ("bold",)), ("unknown", ("yellow",)))
    over = best / need - 1
    said = f"{best:,} {what}, {over:+.1%}" if width >= 60 else f"{over:+.1%} {what}"
    style = ("red",) if best < need else ("yellow",) if over < (each.margin or 0.0) else ("green",)
    bar = tokens_bar(best, need, width - len(said) - 15, bars, style, solid=live is not None)
    return ((" capacity  ", ("bold",)), *bar, (f" {said}", style))


def _use(each: Watched, width: int, bars: Bars) -> Line:
    label: Span = (" KV use    ", ("bold",))
    if each.engine_age_s is None or each.engine_age_s > ENGINE_SILENT_S:
        if each.unit not in ("active", ""):
            return (label, ("nothing runs", ("dim",)))
        since = "yet" if each.engine_age_s is None else f"for {age(each.engine_age_s)}"
        return (label, (f"the engine has not answered {since}", ("yellow",)))
    queue = f"{_count(each.running)} running, {_count(each.waiting)} waiting"
    more = [
        f"{count:,} {word}"
        for count, word in ((each.turned_away, "refused"), (each.preemptions, "preempted"))
        if count and width >= 80
    ]
    said = ", ".join([queue, *more])
    if each.kv_usage is None:
        return (label, ("not told by the engine; ", ("dim",)), (said, ()))
    share_of = f"{each.kv_usage:4.0%}"
    bar = usage_bar(each.kv_usage, width - len(said) - len(share_of) - 18, bars)
    return (label, *bar, (f" {share_of}   {said}", ()))


def _count(value: int | None) -> str:
    return "?" if value is None else f"{value:,}"


def _evidence(each: Watched) -> Line:
    look = mark_of(each.verdict, unicode=True)
    word = each.verdict or "not seen yet"
    old = f", {age(each.evidence_age_s)} ago" if each.evidence_age_s is not None else ", never judged"
    if each.verdict in ("down", "unverified", "half done") and each.evidence_age_s is not None:
        old = f", last judged {age(each.evidence_age_s)} ago"
    found: list[Span] = [(" verdict   ", ("bold",)), (word, look.styles), (old if each.verdict else "", ())]
    if each.runs_release is False:
        found.append(("; what runs is not the release", ("red",)))
    return tuple(found)


def _unit(each: Watched, at: float) -> Line:
    since = f" for {age(max(0.0, at - each.active_at))}" if each.active_at is not None else ""
    tries = "" if each.restarts is None else f", {each.restarts} restart{'' if each.restarts == 1 else 's'}"
    blind = [each_.look for each_ in each.blind if each_.look != "engine" or each.unit == "active"]
    found: list[Span] = [(" unit      ", ("bold",)), (f"{each.unit or 'unknown'}{since}{tries}", ())]
    if blind:
        found.append((f"; not seen now: {', '.join(blind)}", ("yellow",)))
    return tuple(found)


def _contract(each: Watched) -> Line:
    if each.seqs is None or each.len_tokens is None or each.contract_tokens is None:
        return ((" contract  ", ("bold",)), ("unknown", ("yellow",)))
    said = f"{each.seqs:,} x {each.len_tokens:,} = {each.contract_tokens:,} tokens"
    plan = each.planned_tokens
    ends = "" if plan is None else f"; plan {plan[1]:,}" if plan[0] == plan[2] else f"; plan {plan[0]:,} to {plan[2]:,}"
    return ((" contract  ", ("bold",)), (said + ends, ()))


def _foot(order: Sequence[Watched], chosen: Watched | None, view: View, width: int) -> Line:
    keys = "q quit"
    if len(order) > 1:
        keys += f"   {'↑ ↓' if view.unicode else 'j k'} choose"
        keys += "   PgUp PgDn page" if width >= 60 else ""
    at = f"{order.index(chosen) + 1} of {len(order)}" if chosen is not None and len(order) > 1 else ""
    gap = max(1, width - len(keys) - len(at) - 2)
    return clipped(((f" {keys}{' ' * gap}{at}", ("dim",)),), width, unicode=view.unicode)
