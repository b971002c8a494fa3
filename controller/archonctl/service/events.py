"""What happens while an endpoint starts, as values that a caller may show."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

Phase = Literal["plan", "render", "preflight", "start", "load", "ready", "ledger", "probe", "verdict", "serve", "stop"]


@dataclass(frozen=True, slots=True)
class Event:
    """One step or one bit of progress. ``elapsed_s`` counts from the beginning of ``up``.

    ``fraction`` is 0 to 1 where an estimate exists (model bytes against what the engine holds or has read),
    else None. ``progress`` marks a repeated line that replaces the one before it.
    """

    phase: Phase
    text: str
    elapsed_s: float
    fraction: float | None = None
    progress: bool = False


class Say(Protocol):
    """Tells one step or one bit of progress."""

    def __call__(self, phase: Phase, text: str, fraction: float | None = None, *, progress: bool = False) -> None:
        """Tell it."""
        ...


OnEvent = Callable[[Event], None]


def ignore(_event: Event) -> None:
    """For callers that show nothing."""
