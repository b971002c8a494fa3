"""What the guard knows of an engine's capacity and of one request; the words that admission answers with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Capacity:
    """What the running release was verified to hold. A figure that is not known is ``None``: it is not enforced."""

    window_tokens: int | None
    """The longest conversation of one request, prompt and answer together."""
    pool_tokens: int | None
    """KV tokens of all requests together."""
    slots: int | None
    """Requests that the engine runs at once."""
    page_tokens: int = 1
    """A request's tokens are reserved in whole pages of this size."""
    release: str = ""
    source: str = ""
    """Where the figures come from, in words: the verdict, the boot ledger, the engine's own answer."""


@dataclass(frozen=True)
class Ask:
    """One request as admission sees it."""

    client: str
    """The key of fairness: a name of a client's own key, or where it comes from. Never the key itself."""
    prompt_tokens: int
    exact: bool
    """False: an upper bound that is proven, not a count."""
    max_tokens: int | None
    """The longest answer asked for; ``None`` where the request leaves it to the engine."""
    choices: int = 1
    """Answers at once to one prompt (``n``)."""
    count: Callable[[], Awaitable[int]] | None = field(default=None, compare=False)
    """Counts the prompt exactly, called only when the bound does not fit; ``None``: cannot be counted."""


@dataclass(frozen=True)
class Refusal:
    """Why a request does not go to the engine, with everything its client needs to do better."""

    status: int
    """HTTP: 400 can never fit, 503 does not fit now, 429 this client has enough already."""
    code: str
    message: str
    retry_after_s: int | None = None
    want_tokens: int | None = None
    budget_tokens: int | None = None
    largest_max_tokens: int | None = None
    """The longest answer that would fit beside this prompt; ``None`` where the prompt alone is too long."""
    kv_class: str = "kv_cache"
    """The class of memory that is short (``archonctl.memory``)."""
    breakdown: tuple[tuple[str, int], ...] = ()
    """Tokens by what holds them: admitted, waiting, asked for."""


class Refused(Exception):
    """Raised by admission; carries the refusal."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal
