"""What the proxy asks of others, as protocols: who may go in, where its KV cache lies, what is counted."""

from __future__ import annotations

from typing import Protocol

from archonctl.guard.metrics import Outcome
from archonctl.guard.prompt import Prompt
from archonctl.guard.values import Ask


class Held(Protocol):
    """One admitted request (``admission.Ticket``)."""

    @property
    def ask(self) -> Ask:
        """What it asked for, counted as far as that was needed."""

    @property
    def answer_limit(self) -> int | None:
        """The longest answer that must be written into the request; None where nothing must be."""

    def release(self) -> None:
        """Give back what it holds; a second call does nothing."""


class Door(Protocol):
    """Admission (``admission.Admission``)."""

    async def admit(self, ask: Ask, *, wait_s: float) -> Held:
        """Wait for room, at most ``wait_s``. Raises Refused. Cancelled: nothing is held."""


class Counter(Protocol):
    """Who knows the size of a prompt (``tokens.TokenCounter``)."""

    async def ask(self, client: str, prompt: Prompt) -> Ask:
        """What admission needs to know of a request. Does not raise: what cannot be counted is bounded."""


class Placed(Protocol):
    """Where a request goes."""

    @property
    def id_slot(self) -> int | None:
        """The engine's slot that its prefix lies in; ``None`` leaves the choice to the engine."""


class Placement(Protocol):
    """Brings the KV cache of a conversation to where the engine uses it, and away again."""

    async def place(self, prompt: Prompt, ticket: Held) -> Placed:
        """Before the request is sent. Does not raise: what cannot be placed goes as it is."""

    async def done(self, placed: Placed, tail: bytes = b"") -> None:
        """After its answer has ended, whatever way; ``tail`` is the last of its body (``Reply.tail``)."""


class Counts(Protocol):
    """What is counted (``metrics.GuardMetrics``)."""

    def retry(self, outcome: Outcome) -> None:
        """One retry after an engine's memory failure: ``attempted``, then ``succeeded`` or ``failed``."""


class Anywhere:
    """No placement: the engine chooses."""

    id_slot: int | None = None

    async def place(self, _prompt: Prompt, _ticket: Held) -> Placed:
        """Nothing to do."""
        return self

    async def done(self, _placed: Placed, _tail: bytes = b"") -> None:
        """Nothing to do."""
