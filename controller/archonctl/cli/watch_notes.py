"""The findings in ``archonctl watch``: the latest at the bottom, in as many lines as there is room for."""

from __future__ import annotations

import textwrap
from datetime import datetime, tzinfo

from archonctl.cli.harmless import harmless
from archonctl.cli.watch_bars import Line, clipped
from archonctl.observe.watch import Note, Snapshot

_LEVEL = {"bad": ("bold", "red"), "warn": ("yellow",), "info": ()}
_MOST_LINES = 4
"""Of one finding."""


def notes_lines(seen: Snapshot, room: int, width: int, zone: tzinfo | None, *, unicode: bool) -> list[Line]:
    """At most ``room`` lines: where they do not suffice, the oldest are shortened first."""
    if not seen.notes:
        nothing: Line = ((" none within a day" if seen.looked else " looking ...", ("dim",)),)
        return [nothing][:room]
    latest = seen.notes[-room:] if room > 0 else ()
    blocks = [_block(each, seen.at, width, zone) for each in latest]
    spare = room - len(blocks)
    for number in range(len(blocks) - 1, -1, -1):
        more = min(spare, len(blocks[number]) - 1)
        blocks[number] = _shortened(blocks[number], 1 + more, width, unicode=unicode)
        spare -= more
    return [line for block in blocks for line in block]


def _block(each: Note, at: float, width: int, zone: tzinfo | None) -> list[Line]:
    """When, whose, what."""
    when, today = datetime.fromtimestamp(each.at, zone), datetime.fromtimestamp(at, zone).date()
    clock = when.strftime("%H:%M" if when.date() == today else "%m-%d")
    who = f"{each.endpoint or '(host)'}  "
    code = f"  [{each.code}]" if each.code and each.code not in each.text else ""
    indent = len(clock) + 2
    room = max(len(who) + 8, width - indent)
    text = harmless(" ".join(each.text.split())) + code
    first, *more = textwrap.wrap(text, room, initial_indent=" " * len(who), break_on_hyphens=False) or [who]
    styles = _LEVEL[each.level]
    lines: list[Line] = [((f" {clock} ", ("dim",)), (who, ("bold",)), (first[len(who) :], styles))]
    return lines + [((" " * indent + line, styles),) for line in more[: _MOST_LINES - 1]]


def _shortened(block: list[Line], lines: int, width: int, *, unicode: bool) -> list[Line]:
    """Its first lines, with a mark where that is not all."""
    if lines >= len(block):
        return block
    *kept, last = block[:lines]
    return [*kept, clipped((*last, (" " * width, ())), width, unicode=unicode)]
