"""What is staged of an endpoint's conversations, by tier: for ``archonctl tiers status`` and ``clean``. Reads only."""

from __future__ import annotations

import time
from dataclasses import dataclass

from archonctl.tiers.store import Store

SCHEMA = "archonctl.tiers-status/1"


@dataclass(frozen=True, slots=True)
class PlaceStand:
    """One folder. ``oldest_s`` and ``youngest_s``: seconds since staging; ``None`` where nothing is staged."""

    tier: str
    path: str
    limit_bytes: int
    used_bytes: int
    conversations: int
    tokens: int
    oldest_s: float | None
    youngest_s: float | None
    leftovers: tuple[str, ...]
    """Half-made files, which ``clean`` removes."""
    foreign: tuple[str, ...]
    """What is not ours and is never touched."""

    def as_json(self) -> dict[str, object]:
        """JSON-ready."""
        return {
            "tier": self.tier,
            "path": self.path,
            "limit_bytes": self.limit_bytes,
            "used_bytes": self.used_bytes,
            "conversations": self.conversations,
            "tokens": self.tokens,
            "oldest_s": self.oldest_s,
            "youngest_s": self.youngest_s,
            "leftovers": list(self.leftovers),
            "foreign": list(self.foreign),
        }


def stand_of(store: Store, now: float | None = None) -> tuple[PlaceStand, ...]:
    """Every place, hottest first."""
    at, found = time.time() if now is None else now, []
    for name, spec in store.specs.items():
        here = [entry.staged for entry in store.entries.values() if name in entry.places]
        ages = sorted(max(0.0, at - staged.at) for staged in here)
        found.append(
            PlaceStand(
                name,
                str(spec.path),
                spec.quota_bytes,
                sum(staged.bytes for staged in here),
                len(here),
                sum(staged.tokens for staged in here),
                ages[-1] if ages else None,
                ages[0] if ages else None,
                tuple(each for place, each in store.leftovers.ours if place == name),
                tuple(each for place, each in store.leftovers.foreign if place == name),
            )
        )
    return tuple(found)
