"""Where one request was sent, and what was expected there."""

from __future__ import annotations

from dataclasses import dataclass

from archonctl.tiers.book import Conversation, Seat
from archonctl.tiers.prefix import Prefix


@dataclass(frozen=True)
class Seated:
    """Of one request."""

    id_slot: int | None = None
    seat: Seat | None = None
    conversation: Conversation | None = None
    expected_tokens: int | None = None
    """Tokens of its prompt that were computed before, wherever they lay; ``None``: a prompt that was never seen."""
    prefix: Prefix | None = None
    """Of its prompt: what the slot holds once the request has run."""
    was_there: bool = False
    """The slot held the conversation before the request was sent."""
    restored: bool = False
    task_before: int | None = None
    """The latest request that was seen in the slot before this one."""


UNPLACED = Seated()
"""Left to the engine."""
