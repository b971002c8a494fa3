"""What is staged of an endpoint's conversations, for people."""

from __future__ import annotations

from collections.abc import Sequence

from archonctl.memory.interval import MIB
from archonctl.tiers.stand import PlaceStand


def staged_text(places: Sequence[PlaceStand], removed: Sequence[tuple[str, str]] | None) -> str:
    """A line a place; what was removed, where that was asked for."""
    lines = []
    for each in places:
        lines.append(
            f"{each.tier:6} {each.conversations:5,} conversations  {each.tokens:11,} tokens  "
            f"{each.used_bytes / MIB:10,.1f} of {each.limit_bytes / MIB:,.0f} MiB  {each.path}"
        )
        if each.oldest_s is not None and each.youngest_s is not None:
            lines.append(f"       staged {_ago(each.youngest_s)} to {_ago(each.oldest_s)} ago")
        if each.leftovers:
            lines.append(f"       {len(each.leftovers)} half-made: archonctl tiers clean")
        if each.foreign:
            lines.append(f"       {len(each.foreign)} not ours, left alone: {', '.join(map(repr, each.foreign[:3]))}")
    if removed is not None:
        lines += [f"removed {tier} {name}" for tier, name in removed] or ["nothing to remove"]
    return "\n".join(lines)


def _ago(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
