"""What the guard knows of an engine's capacity and of one request; the words that admission answers with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from archonctl.memory.demand import MemoryClass


@dataclass(frozen=True)
class Capacity:
    """What the running release was verified to hold. A figure that is not known is ``None``: it is not enforced."""

    window_tokens: int | None = None
    """The longest conversation of one request, prompt and answer together."""
    pool_tokens: int | None = None
    """KV tokens of all requests together; of one replica where there are several."""
    slots: int | None = None
    """Requests that the engine runs at once; of one replica where there are several."""
    page_tokens: int = 1
    """A sequence's tokens are reserved in whole pages of this size."""
    queues: bool = False
    """The engine itself makes a sequence wait that its pool has no room for (vLLM, SGLang): a request of several
    sequences cannot fail for the pool as long as each of them fits."""
    slides: bool = False
    """The engine drops the oldest tokens of a conversation that reaches its window, and goes on (llama.cpp
    ``--context-shift``): a long answer takes no more than the window."""
    answer_tokens: int | None = None
    """The longest answer where a request names none, if the engine was told one; ``None``: up to the window."""
    sequence_tokens: int | None = None
    """What a conversation is declared to be at most (``contract.len``): reserved where nobody bounds its answer."""
    replicas: int = 1
    release: str = ""
    source: str = ""
    """Where the figures come from, in words: the verdict, the boot ledger, the engine's own answer."""

    @property
    def is_known(self) -> bool:
        """True if there is any figure to hold a request against."""
        return not (self.window_tokens is None and self.pool_tokens is None and self.slots is None)


Counts = tuple[int, ...]
"""Tokens of every prompt of a request: one for a chat, several for a list of prompts."""


@dataclass(frozen=True)
class Ask:
    """One request as admission sees it."""

    client: str
    """The key of fairness: a name of a client's own key, or where it comes from. Never the key itself."""
    prompts: Counts
    """Tokens of each prompt: counted, or proven upper bounds. Where ``unknown`` is set, what of it is known."""
    exact: bool
    """False: upper bounds that are proven, no counts."""
    max_tokens: int | None
    """The longest answer asked for; ``None`` where the request leaves it to the engine. 0: nothing is generated."""
    choices: int = 1
    """Answers at once to each prompt (``n``)."""
    count: Callable[[], Awaitable[Counts | None]] | None = field(default=None, compare=False)
    """Counts the prompts exactly, called only when the bounds do not fit; it gives ``None`` where that cannot be."""
    unknown: str = ""
    """Why the prompt cannot be sized (a short word, for a counter): such a request passes."""

    @property
    def prompt_tokens(self) -> int:
        """All prompts together."""
        return sum(self.prompts)


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
    kv_class: MemoryClass | None = None
    """The class of memory that is short (``archonctl.memory``); ``None`` where none is (slots, queues, keys, sizes)."""
    breakdown: tuple[tuple[str, int], ...] = ()
    """Tokens by what holds them: admitted, waiting, asked for."""


class Refused(Exception):
    """Raised by admission; carries the refusal."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal
