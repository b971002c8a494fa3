"""The refusals of admission in words and numbers. Pure."""

from __future__ import annotations

from archonctl.guard.need import Need, TooLong
from archonctl.guard.pool import Shortage
from archonctl.guard.values import Ask, Refusal

NEVER_WINDOW = "request-over-window"
NEVER_POOL = "request-over-pool"
POOL_BUSY = "pool-busy"
SLOTS_BUSY = "slots-busy"
QUEUE_FULL = "guard-queue-full"
CLIENT_WAITING = "client-queue-full"


def never_fits(ask: Ask, found: TooLong) -> Refusal:
    """400: however long it waits."""
    if found.limit == "window":
        code, of = NEVER_WINDOW, f"a conversation holds at most {found.budget_tokens:,} tokens"
    else:
        code, of = NEVER_POOL, f"the KV cache holds at most {found.budget_tokens:,} tokens"
    prompt = max(ask.prompts, default=0) if found.limit == "window" else ask.prompt_tokens
    answer = f"up to {ask.max_tokens:,} of the answer" if ask.max_tokens is not None else "1 of the answer at least"
    times = f", {ask.choices} answers" if ask.choices > 1 else ""
    help_ = (
        f"max_tokens of {found.largest_max_tokens:,} would fit"
        if found.largest_max_tokens is not None
        else "the prompt alone is too long: no max_tokens would fit"
    )
    message = (
        f"this request can never fit: {prompt:,} tokens of the prompt and {answer}{times} need "
        f"{found.want_tokens:,} tokens, and {of} ({found.want_tokens - found.budget_tokens:,} over); {help_}"
    )
    return Refusal(
        400,
        code,
        message,
        want_tokens=found.want_tokens,
        budget_tokens=found.budget_tokens,
        largest_max_tokens=found.largest_max_tokens,
        kv_class="kv_cache",
        breakdown=(("prompt", ask.prompt_tokens), ("answer", max(0, found.want_tokens - prompt))),
    )


def not_now(
    short: Shortage, need: Need, held: Need, waiting_tokens: int, budget: Need, retry_after_s: int, waited_s: float
) -> Refusal:
    """503: it fits, but not within its time. ``budget`` are the tokens and the slots that there are (0: unknown)."""
    free = max(0, budget.tokens - held.tokens)
    if short == "slots":
        code, what = SLOTS_BUSY, f"{held.slots:,} of {budget.slots:,} slots are taken, {need.slots:,} wanted"
    else:
        code = POOL_BUSY
        what = f"{need.tokens:,} KV tokens wanted, {free:,} of {budget.tokens:,} free, {held.tokens:,} held by others"
    return Refusal(
        503,
        code,
        f"this request does not fit now: {what}; it waited {waited_s:.1f} s. Try again in {retry_after_s} s",
        retry_after_s=retry_after_s,
        want_tokens=need.tokens,
        budget_tokens=free if budget.tokens else None,
        kv_class=None if short == "slots" else "kv_cache",
        breakdown=(("pool", budget.tokens), *_breakdown(held, waiting_tokens, need)),
    )


def queue_full(waiting: int, need: Need, held: Need, waiting_tokens: int, retry_after_s: int) -> Refusal:
    """503: as many wait as may."""
    return Refusal(
        503,
        QUEUE_FULL,
        f"{waiting:,} requests wait already, no more may. Try again in {retry_after_s} s",
        retry_after_s=retry_after_s,
        want_tokens=need.tokens,
        breakdown=_breakdown(held, waiting_tokens, need),
    )


def client_full(waiting: int, need: Need, retry_after_s: int) -> Refusal:
    """429: this client has as many waiting as one may."""
    return Refusal(
        429,
        CLIENT_WAITING,
        f"{waiting:,} requests of this client wait already, no more may. Try again in {retry_after_s} s",
        retry_after_s=retry_after_s,
        want_tokens=need.tokens,
        breakdown=(("asked", need.tokens),),
    )


def _breakdown(held: Need, waiting_tokens: int, need: Need) -> tuple[tuple[str, int], ...]:
    return ("admitted", held.tokens), ("waiting", waiting_tokens), ("asked", need.tokens)
