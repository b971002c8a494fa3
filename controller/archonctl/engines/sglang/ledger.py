"""SGLang: the second pool of a rank is the draft's, and of two pools of one model the smaller binds."""

from __future__ import annotations

from collections.abc import Mapping

from archonctl.engines.sighting import RANK_LIMIT, Book, Find, Sighting
from archonctl.memory.interval import Interval

_POOL = ("kv_tokens", "k_gib", "v_gib", "kv_gib")


class SglangBook(Book):
    """Tells target from draft, rank by rank."""

    def __post_init__(self) -> None:
        self._pools: dict[str, list[Mapping[str, Find]]] = {}
        self._loads: dict[str, int] = {}

    def note(self, sighting: Sighting) -> None:
        """Take one sighting in."""
        if sighting.row in ("kv-pool", "kv-pool-tokens"):
            pools = self._pools.setdefault(sighting.rank, []) if len(self._pools) < RANK_LIMIT else []
            if len(pools) < 8:
                pools.append(sighting.figures)
            self.told.update(sighting.facts)
        elif sighting.row == "load-end":
            self._load(sighting)
        else:
            if sighting.row == "swa-pool":
                self._two_pools_are_one(sighting)
            super().note(sighting)

    def _load(self, s: Sighting) -> None:
        """The second load of a rank is the draft's."""
        count = self._loads[s.rank] = self._loads.get(s.rank, 0) + 1
        figures = dict(s.figures)
        if count > 1 and "weights_gib" in figures:
            figures["draft_weights_gib"] = figures.pop("weights_gib")
        super().note(Sighting(s.row, figures, s.facts, s.rank, s.line_no, s.text))

    def _two_pools_are_one(self, s: Sighting) -> None:
        """A sliding-window model prints its two pools and then their sum: they are one cache, not target and draft."""
        pools = self._pools.get(s.rank, [])
        if len(pools) >= 2 and "full_tokens" in s.figures:
            full = pools.pop()
            pools.pop()
            pools.append(full)

    def figures(self) -> dict[str, Find]:
        """All figures of the boot."""
        whole = Book(self.rules, by_rank={name: dict(ranks) for name, ranks in self.by_rank.items()})
        for rank, pools in self._pools.items():
            for index, pool in enumerate(pools):
                for name in _POOL:
                    if name in pool:
                        whole.add(f"draft_{name}" if index else name, pool[name], rank)
        found = whole.figures()
        total = found.get("max_total_num_tokens")
        if total is not None:
            least = min(found.get("kv_tokens", total), total, key=lambda find: find.value.best)
            found["kv_tokens"] = least
        return _smaller_pool_binds(found)


def _smaller_pool_binds(found: dict[str, Find]) -> dict[str, Find]:
    """With a sliding-window pool the tokens lie between the smaller pool and the larger one.

    Requests about one window long need as many tokens in both; longer ones need fewer in the sliding pool.
    """
    swa, full = found.get("swa_tokens"), found.get("full_tokens") or found.get("kv_tokens")
    if swa is None or full is None:
        return found
    low, high = sorted((swa.value.best, full.value.best))
    found["kv_tokens"] = Find(Interval(low, low, high, "log"), swa.line_no, swa.text)
    return found


BOOK = SglangBook
