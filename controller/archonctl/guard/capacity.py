"""What the running release was verified to hold, joined with what the live engine states."""

from __future__ import annotations

from archonctl.guard.values import Capacity


class CapacityWatch:
    """Reads the capacity again now and then, and at once when the engine was seen to be away."""

    def __init__(self) -> None:
        self.capacity = Capacity()

    async def refresh(self) -> Capacity:
        """Read what is on disk and what the engine states; cheap. Never raises: what cannot be read is unknown."""
        return self.capacity
