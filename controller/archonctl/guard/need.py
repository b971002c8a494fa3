"""How many KV tokens and slots one request takes at most, and whether it can ever fit. Pure.

The law of one sequence of P prompt tokens and an answer of at most M: it ends with P + M tokens in the cache, which is
filled in whole pages (1 token in llama.cpp, a block in vLLM and SGLang, 4 tokens in radiance). Answers at once to one
prompt share the prompt's whole pages: llama.cpp copies a slot's sequence by reference (server-context.cpp
``copy_state_to``, ``llama_memory_seq_cp``), vLLM and SGLang find the blocks in the prefix cache.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from archonctl.guard.values import Ask, Capacity


@dataclass(frozen=True)
class Need:
    """What a request holds at once, at most. ``tokens`` is in whole pages."""

    tokens: int
    slots: int


def whole_pages(tokens: int, page_tokens: int) -> int:
    """Tokens rounded up to whole pages."""
    return -(-tokens // page_tokens) * page_tokens


def budget_tokens(capacity: Capacity) -> int | None:
    """Tokens in whole pages that all requests together may hold; over all replicas."""
    if capacity.pool_tokens is None:
        return None
    return capacity.pool_tokens // capacity.page_tokens * capacity.page_tokens * capacity.replicas


def slots_of(capacity: Capacity) -> int | None:
    """Sequences that run at once, over all replicas."""
    return None if capacity.slots is None else capacity.slots * capacity.replicas


def longest_tokens(capacity: Capacity) -> int | None:
    """The longest single sequence: the window, or a pool that is smaller than it. None where neither is known."""
    page = capacity.page_tokens
    pool = None if capacity.pool_tokens is None else capacity.pool_tokens // page * page
    return min((each for each in (capacity.window_tokens, pool) if each is not None), default=None)


def answer_tokens(ask: Ask, prompt: int, capacity: Capacity) -> int:
    """The longest answer to one prompt that is reserved. Where neither the request nor the engine bounds it, what is
    left of the declared length of a conversation, or of the longest one there can be; 0 where that is unknown too."""
    if ask.max_tokens is not None:
        window = capacity.window_tokens if capacity.slides else None
        return ask.max_tokens if window is None else min(ask.max_tokens, max(1, window - prompt))
    longest, declared = longest_tokens(capacity), capacity.sequence_tokens
    if declared is not None and prompt < declared and is_ours_to_bound(ask, capacity):
        longest = declared
    rest = None if longest is None else max(1, longest - prompt)
    return min((each for each in (capacity.answer_tokens, rest) if each is not None), default=0)


def answer_limit(ask: Ask, capacity: Capacity) -> int | None:
    """What must be written into a request that names no longest answer, so that the engine keeps to what is reserved
    for it; None where it does so anyway. The declared length of a conversation is ours, engines do not know it."""
    if not is_ours_to_bound(ask, capacity):
        return None
    rests = [answer_tokens(ask, prompt, capacity) for prompt in ask.prompts]
    longest = longest_tokens(capacity)
    known = [
        rest for rest, prompt in zip(rests, ask.prompts, strict=True) if longest is None or prompt + rest < longest
    ]
    return min(known, default=None)


def is_ours_to_bound(ask: Ask, capacity: Capacity) -> bool:
    """True if neither the request nor the engine bounds the answer short of the declared length of a conversation."""
    declared, longest = capacity.sequence_tokens, longest_tokens(capacity)
    if ask.max_tokens is not None or capacity.answer_tokens is not None or declared is None:
        return False
    return longest is None or declared < longest


def need_of(ask: Ask, capacity: Capacity) -> Need:
    """What a request takes of this capacity; tokens that must be free at once for it to run without failing."""
    of_each = [_prompt_tokens(ask, prompt, capacity) for prompt in ask.prompts]
    slots, budget = slots_of(capacity), budget_tokens(capacity)
    sequences = len(of_each) * ask.choices
    if slots is not None and sequences > slots:  # the engine runs the rest later, when slots are free again
        of_each = sorted(of_each, reverse=True)[: max(1, slots // ask.choices)]
        sequences = slots
    tokens = sum(of_each)
    if capacity.queues and budget is not None:
        tokens = min(tokens, budget)
    return Need(tokens, sequences)


def _prompt_tokens(ask: Ask, prompt: int, capacity: Capacity) -> int:
    page = capacity.page_tokens
    shared = prompt // page * page
    end = whole_pages(prompt + answer_tokens(ask, prompt, capacity), page)
    return shared + ask.choices * (end - shared)


@dataclass(frozen=True)
class TooLong:
    """A request that can never fit: what it wants of what there is, and which limit it breaks."""

    limit: str
    """``window`` (one sequence) or ``pool`` (all that must be held at once)."""
    want_tokens: int
    budget_tokens: int
    largest_max_tokens: int | None


def too_long(ask: Ask, capacity: Capacity) -> TooLong | None:
    """Why a request can never fit, however long it waits; None where it can, or nothing known speaks against it."""
    broken = _broken(ask, capacity)
    if broken is None:
        return None
    limit, want, budget = broken
    return TooLong(limit, want, budget, largest_answer(ask, capacity))


def _broken(ask: Ask, capacity: Capacity) -> tuple[str, int, int] | None:
    prompt = max(ask.prompts, default=0)
    sequence = prompt + _least(ask, prompt, capacity)
    if capacity.window_tokens is not None and sequence > capacity.window_tokens:
        return "window", sequence, capacity.window_tokens
    one = longest_tokens(capacity)
    if one is not None and sequence > one:
        return "pool", whole_pages(sequence, capacity.page_tokens), one
    budget, wanted = budget_tokens(capacity), need_of(ask, capacity).tokens
    if budget is not None and wanted > budget and not capacity.queues:
        return "pool", wanted, budget
    return None


def _least(ask: Ask, prompt: int, capacity: Capacity) -> int:
    """The answer that must have room: what was asked for, and one token at least where anything is generated."""
    if ask.max_tokens == 0:
        return 0
    return max(1, answer_tokens(ask, prompt, capacity)) if ask.max_tokens is not None else 1


def largest_answer(ask: Ask, capacity: Capacity) -> int | None:
    """The largest ``max_tokens`` with which the request can fit an idle engine; None where not even 1 does."""
    low, high = 0, (longest_tokens(capacity) or 0) + 1  # fits with low, not with high: halved until they meet
    while high - low > 1:
        middle = (low + high) // 2
        fits = _broken(_with_answer(ask, middle), capacity) is None
        low, high = (middle, high) if fits else (low, middle)
    return low or None


def _with_answer(ask: Ask, max_tokens: int) -> Ask:
    return Ask(ask.client, ask.prompts, ask.exact, max_tokens, ask.choices)


def held(needs: Iterable[Need]) -> Need:
    """The sum."""
    tokens = slots = 0
    for each in needs:
        tokens, slots = tokens + each.tokens, slots + each.slots
    return Need(tokens, slots)
