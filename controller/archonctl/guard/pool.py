"""What is held of a capacity, and what still fits. Pure; every figure in tokens of whole pages, and in slots."""

from __future__ import annotations

from typing import Literal

from archonctl.guard.need import Need, budget_tokens, slots_of
from archonctl.guard.values import Capacity

Shortage = Literal["pool", "slots"]
_NOTHING = Need(0, 0)


class Pool:
    """Reservations by a number that the caller gives. What is unknown of the capacity is not enforced."""

    def __init__(self, capacity: Capacity) -> None:
        self.capacity = capacity
        self.tokens = 0
        self.slots = 0
        self.high_water_tokens = 0
        self._held: dict[int, Need] = {}

    def __len__(self) -> int:
        return len(self._held)

    def shortage(self, need: Need) -> Shortage | None:
        """What is short of it now. A request that finds nothing held always fits: waiting would not help it."""
        budget, slots = budget_tokens(self.capacity), slots_of(self.capacity)
        if not self._held:
            return None
        if slots is not None and self.slots + need.slots > slots:
            return "slots"
        if budget is not None and self.tokens + need.tokens > budget:
            return "pool"
        return None

    @property
    def free_tokens(self) -> int | None:
        """What is left of the budget; below 0 where it shrank under what is held; None where it is not known."""
        budget = budget_tokens(self.capacity)
        return None if budget is None else budget - self.tokens

    def hold(self, number: int, need: Need) -> None:
        """Reserve, or change what is reserved. Whether it fits was asked before."""
        before = self._held.get(number, _NOTHING)
        self._held[number] = need
        self._count(need.tokens - before.tokens, need.slots - before.slots)

    def let_go(self, number: int) -> bool:
        """Give back; False if nothing was held by that number."""
        before = self._held.pop(number, None)
        if before is None:
            return False
        self._count(-before.tokens, -before.slots)
        return True

    def held_by(self, number: int) -> Need:
        """What a number holds; nothing if it is not known."""
        return self._held.get(number, _NOTHING)

    def _count(self, tokens: int, slots: int) -> None:
        self.tokens += tokens
        self.slots += slots
        self.high_water_tokens = max(self.high_water_tokens, self.tokens)
