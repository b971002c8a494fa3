"""What an engine's answers mean: refusals by their kind, completions by what they really hold."""

from __future__ import annotations

import re
from dataclasses import dataclass

from archonctl.probe.faults import Fault
from archonctl.probe.jsonread import as_int, as_str, items, pick

_WINDOW = re.compile(
    r"context (size|length|window|limit)|maximum (model |context )?len|max_model_len|too large to ever fit|"
    r"exceeds? .{0,60}(context|limit|window)|does not fit the .{0,40}context|longer than|tokens? to cut|context_length",
    re.I,
)
_POOL = re.compile(r"context size has been exceeded|kv cache (is )?(full|exhausted)|failed to find .{0,20}kv", re.I)


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error object of an engine: ``{"error": {...}}``, ``{"error": "..."}`` or ``{"object": "error", ...}``."""

    message: str
    kind: str
    status: int | None
    n_prompt_tokens: int | None = None
    n_ctx: int | None = None


def read_refusal(value: object) -> Refusal | None:
    """The error in a JSON answer, or None if there is none."""
    error = pick(value, "error")
    if error is None and as_str(pick(value, "object")) == "error":
        error = value
    if error is None and pick(value, "choices") is None and pick(value, "detail") is not None:
        detail = pick(value, "detail")
        return Refusal(detail if isinstance(detail, str) else repr(detail)[:2000], "detail", None)
    if not error:
        return None
    if isinstance(error, str):
        return Refusal(error, "", as_int(pick(value, "code")))
    return Refusal(
        as_str(pick(error, "message")) or repr(error)[:2000],
        as_str(pick(error, "type")),
        as_int(pick(error, "code")),
        as_int(pick(error, "n_prompt_tokens")),
        as_int(pick(error, "n_ctx")),
    )


def about_window(refusal: Refusal) -> bool:
    """True if the refusal is for a prompt that the window (or the pool) can never hold."""
    return refusal.kind == "exceed_context_size_error" or bool(_WINDOW.search(refusal.message))


def refused(status: int, refusal: Refusal | None, said: str, what: str, retry_after: str = "") -> Fault:
    """The fault for a request of the contract's size that was not served. ``said`` is a clean excerpt."""
    window = ""
    if status in (429, 503):
        code = "queue-full"
    elif refusal and _POOL.search(refusal.message) and status >= 500:
        code = "pool-exhausted"
    elif refusal and about_window(refusal):
        code = "window-exceeded"
        window = f"a window of {refusal.n_ctx:,} tokens" if refusal.n_ctx is not None else ""
    else:
        code = "engine-error" if status >= 500 else "request-refused"
    return Fault(
        code,
        f"{what}: HTTP {status}: {said}",
        actual=window or f"HTTP {status}",
        evidence=said,
        http_status=status,
        retry_after=retry_after,
    )


@dataclass(frozen=True, slots=True)
class Generation:
    """One answer. ``text`` is what the reader sees, ``reasoning`` what a reasoning model thought aloud."""

    text: str
    reasoning: str
    finish_reason: str
    prompt_tokens: int | None
    completion_tokens: int | None
    model: str
    tool_calls: bool = False

    @property
    def visible(self) -> bool:
        """True if anything at all was generated that a client can see."""
        return bool(self.text or self.reasoning or self.tool_calls)


def read_generation(value: object) -> Generation | None:
    """A chat or text completion, or None if the JSON is neither."""
    choice = pick(value, "choices", 0)
    if not isinstance(choice, dict):
        return None
    message = pick(choice, "message")
    if not isinstance(message, dict) and not isinstance(pick(choice, "text"), str):
        return None
    return Generation(
        text=as_str(pick(message, "content")) or as_str(pick(choice, "text")),
        reasoning=as_str(pick(message, "reasoning_content")) or as_str(pick(message, "reasoning")),
        finish_reason=as_str(pick(choice, "finish_reason")),
        prompt_tokens=as_int(pick(value, "usage", "prompt_tokens")),
        completion_tokens=as_int(pick(value, "usage", "completion_tokens")),
        model=as_str(pick(value, "model")),
        tool_calls=bool(items(pick(message, "tool_calls"))),
    )


def judge_generation(generation: Generation, asked_tokens: int) -> str:
    """Why this is no real generation, or an empty string if it is one.

    A reasoning model that spends its budget on thinking has empty ``content``, and is healthy. An answer whose text
    is hidden altogether counts only if the engine's own count says that the whole budget was generated.
    """
    tokens = generation.completion_tokens
    if tokens == 0:
        return "usage says that 0 tokens were generated"
    if generation.visible:
        return ""
    if generation.finish_reason == "length" and tokens is not None and tokens >= asked_tokens:
        return ""
    counted = "an unknown number of" if tokens is None else f"{tokens:,}"
    return (
        f"content, reasoning_content and reasoning are empty; usage says {counted} tokens, "
        f"finish_reason is {generation.finish_reason or 'missing'}"
    )


def model_ids(value: object) -> tuple[str, ...] | None:
    """The ids of a model list, or None if it is not one."""
    data = pick(value, "data")
    if not isinstance(data, list):
        return None
    ids = [as_str(pick(entry, "id")) for entry in data]
    return tuple(ids) if ids and all(ids) else None


def listed_window(value: object, model: str) -> int | None:
    """The window that a model list states for one id (vLLM ``max_model_len``, llama.cpp ``meta.n_ctx``)."""
    for entry in items(pick(value, "data")):
        if pick(entry, "id") == model:
            window = as_int(pick(entry, "max_model_len"))
            return window or as_int(pick(entry, "meta", "n_ctx")) or None
    return None


def is_same_model(value: object, asked: str, answered: str) -> bool:
    """True if two ids of a model list name one model (llama.cpp ``aliases``, vLLM ``root``)."""
    if asked == answered:
        return True
    found = {as_str(pick(entry, "id")): entry for entry in items(pick(value, "data"))}
    one, other = found.get(asked), found.get(answered)
    roots = {as_str(pick(one, "root")), as_str(pick(other, "root"))}
    return answered in items(pick(one, "aliases")) or (len(roots) == 1 and "" not in roots)
