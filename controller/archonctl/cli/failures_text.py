"""What ran out of memory, for eyes and for tools."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime

from archonctl.cli.output import Output
from archonctl.cli.relief_text import relief_text, relief_value
from archonctl.observe.failures import Failure
from archonctl.observe.relief import Advice

SCHEMA = "archonctl.failures/1"
_SHOWN = 20


def failures_json(found: Sequence[Failure], since: str, advice: Sequence[Advice] = ()) -> dict[str, object]:
    """Every event, oldest first, how many of each kind, and what would give that memory back."""
    counts = Counter((each.endpoint, each.cls, each.by) for each in found)
    return {
        "schema": SCHEMA,
        "since": since,
        "counts": [
            {"endpoint": endpoint or None, "class": cls, "by": by, "count": count}
            for (endpoint, cls, by), count in sorted(counts.items())
        ],
        "failures": [
            {
                "at": each.at,
                "endpoint": each.endpoint or None,
                "class": each.cls,
                "by": each.by,
                "site": each.site,
                "row": each.row,
                "short_bytes": each.short_bytes,
                "at_most": each.at_most,
                "card": each.card,
                "pool": each.pool,
            }
            for each in found
        ],
        "relief": [
            {
                "endpoint": each.endpoint,
                "class": each.cls,
                "release": each.release or None,
                "is_current": each.is_current,
                "runbook": each.runbook,
                "answer": relief_value(each.relief) if each.relief else None,
                "why_not": each.why or None,
            }
            for each in advice
        ],
    }


def failures_text(found: Sequence[Failure], since: str, advice: Sequence[Advice], out: Output) -> str:
    """Counts by endpoint and class, then the latest events, then what would give that memory back."""
    if not found:
        return f"nothing ran out of memory since {since}, by what the journal shows"
    counts = Counter((each.endpoint or "(host)", each.cls, each.by) for each in found)
    lines = [f"{'endpoint':16} {'class':12} {'said by':8} {'times':>6}  latest"]
    for (endpoint, cls, by), count in sorted(counts.items()):
        last = max(each.at for each in found if (each.endpoint or "(host)", each.cls, each.by) == (endpoint, cls, by))
        lines.append(f"{endpoint:16} {cls:12} {by:8} {count:6,}  {_time(last)}")
    lines.append("")
    for each in found[-_SHOWN:]:
        room = max(20, out.width - 22)
        lines.append(f"{_time(each.at)}  {each.site if len(each.site) <= room else each.site[: room - 3] + '...'}")
    for way in advice:
        lines.append("")
        if not way.is_current:
            lines.append(f"{way.endpoint}: release {way.release}, which is not the current one:")
        if way.relief is not None:
            lines.append(relief_text(way.relief, out, endpoint=way.endpoint))
        else:
            lines.append(f"{way.endpoint}: {way.cls}: no plan can be made ({way.why}); archonctl explain {way.runbook}")
    return "\n".join(lines)


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
