"""radiance's budget table, and what the kv report says when it names sessions but no tokens."""

from __future__ import annotations

from collections.abc import Iterable

from archonctl.engines.sighting import Book, Find, Note, Sighting
from archonctl.memory.interval import GIB, MIB, Interval

_LABELS = {
    "card total": "card_total_gib",
    "already held": "held_gib",
    "activation arena": "arena_gib",
    "step staging": "staging_gib",
    "--gpu-headroom-mib": "headroom_mib",
    "claimable": "claimable_gib",
    "static weights": "static_gib",
    "elastic": "elastic_gib",
    "experts": "experts_gib",
    "kv cache": "kv_mib",
    "unusable": "unusable_gib",
    "prefill staging": "prefill_staging_gib",
    "vram_weights": "vram_weights_mib",
    "vram_kv": "vram_kv_mib",
    "unclaimed": "unclaimed_mib",
}


class RadianceBook(Book):
    """Names the rows of the budget table, and settles what the kv report means in tokens."""

    def note(self, sighting: Sighting) -> None:
        """Take one sighting in."""
        if sighting.row.startswith("budget-row"):
            self._budget_row(sighting)
        else:
            super().note(sighting)

    def _budget_row(self, s: Sighting) -> None:
        name = _LABELS[s.facts["label"]]
        find = s.figures["size_gib"]
        if name.endswith("_mib"):
            find = Find(_scaled(find.value, GIB / MIB), find.line_no, find.text)
        self.add(name, find, s.rank)

    def figures(self) -> dict[str, Find]:
        """All figures of the boot."""
        found = super().figures()
        groups = found.get("group_tokens")
        if "kv_tokens" not in found and groups is not None:
            found["kv_tokens"] = groups
        if "kv_tokens" not in found and (backed := _backed(found)) is not None:
            found["kv_tokens"] = backed
        return found

    def notes(self) -> Iterable[Note]:
        """A card that settled below its floor."""
        free, floor = self.folded("free_gib"), self.folded("floor_mib")
        if free is not None and floor is not None and free.value.high * GIB / MIB < floor.value.low:
            yield Note("headroom-short", "warning", free.text, free.line_no)


def _scaled(value: Interval, factor: float) -> Interval:
    return Interval(value.low * factor, value.best * factor, value.high * factor, value.source)


def _backed(found: dict[str, Find]) -> Find | None:
    """Tokens from "p% of the worst case (S sequences at L), M sessions": an interval as wide as the printing is coarse.

    Whether the engine rounds or cuts is not documented, so both are allowed for: half a unit below, one above. A pool
    is never larger than the worst case.
    """
    length, seqs, sessions = found.get("n_ctx_seq"), found.get("n_seqs"), found.get("sessions")
    if length is None or seqs is None or sessions is None:
        return None
    worst = length.value.best * seqs.value.best
    low, best, high = (length.value.best * m for m in _printed(sessions.value))
    percent = found.get("worst_case_percent")
    if percent is not None:
        least, _, most = _printed(percent.value)
        low, high = max(low, worst * least / 100), min(high, worst * most / 100)
    high = min(high, worst)
    if low > high:
        return None
    return Find(Interval(low, min(max(best, low), high), high, "log"), sessions.line_no, sessions.text)


def _printed(value: Interval) -> tuple[float, float, float]:
    """What a printed figure may stand for, rounded or cut."""
    half = 0.5 if value.is_exact else value.high - value.best
    return value.best - half, value.best, value.best + 2 * half


BOOK = RadianceBook
