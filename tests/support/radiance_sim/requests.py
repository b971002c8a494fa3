"""What a generation request says: every field is known, refused with its name, or inert, as in public 1.0.x."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

COMMON = frozenset(
    {
        "model",
        "stream",
        "stream_options",
        "n",
        "seed",
        "stop",
        "max_tokens",
        "temperature",
        "top_p",
        "top_k",
        "min_p",
        "typical_p",
        "presence_penalty",
        "frequency_penalty",
        "repetition_penalty",
        "repeat_last_n",
        "xtc_probability",
        "xtc_threshold",
        "dry_multiplier",
        "dry_base",
        "dry_allowed_length",
        "dry_penalty_last_n",
        "dry_sequence_breakers",
        "grammar",
        "priority",
        "logprobs",
        "ignore_eos",
    }
)
CHAT = frozenset(
    {
        "messages",
        "tools",
        "tool_choice",
        "response_format",
        "top_logprobs",
        "parallel_tool_calls",
        "add_generation_prompt",
        "max_completion_tokens",
        "chat_template_kwargs",
        "reasoning_effort",
        "enable_thinking",
        "preserve_thinking",
    }
)
COMPLETION = frozenset({"prompt", "echo"})
INERT = frozenset({"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key"})
RANGES = {"temperature": (0, 2), "top_p": (0, 1), "min_p": (0, 1), "presence_penalty": (-2, 2)}
TEMPLATE_TOKENS = 9
"""What the chat template puts around one message."""


class BadRequest(Exception):
    """A 400; ``field`` and ``code`` go into the error object."""

    def __init__(self, field: str, why: str, code: str | None = None) -> None:
        super().__init__(f"{field}: {why}" if field else why)
        self.field, self.code = field, code


@dataclass(frozen=True)
class Wanted:
    """One request: tokens of the prompt and of the answer at most, and how it wants the answer."""

    chat: bool
    prompt: int
    answer: int
    stream: bool
    usage: bool
    thinks: bool
    ignore_eos: bool
    model: str


def tokens(text: str) -> int:
    """The simulator's tokenizer: a token a word, and one for every 32 characters of a longer one."""
    return sum(1 + (len(word) - 1) // 32 for word in text.split())


def parse(body: bytes, *, chat: bool, window: int, model: str, cap: int = 0) -> Wanted:
    """Read and check a body. Raises BadRequest."""
    value = _object(body)
    for name in value:
        if name not in COMMON | INERT | (CHAT if chat else COMPLETION):
            raise BadRequest(name, "unrecognised parameter for this endpoint", "unsupported_parameter")
    if value.get("logprobs"):
        raise BadRequest("logprobs", "this build returns no probabilities", "unsupported_parameter")
    for name, (low, high) in RANGES.items():
        number = value.get(name)
        if number is not None and not (isinstance(number, int | float) and low <= number <= high):
            raise BadRequest(name, f"must be in [{low}, {high}], got {number}")
    field = "messages" if chat else "prompt"
    prompt = _messages(value.get("messages")) if chat else _prompt(value.get("prompt"))
    asked = _whole(value, "max_tokens")
    asked = _whole(value, "max_completion_tokens") or asked if chat else asked
    options = value.get("stream_options") or {}
    if not isinstance(options, dict):
        raise BadRequest("stream_options", "expected an object")
    return Wanted(
        chat=chat,
        prompt=prompt,
        answer=_room(prompt, min(asked or cap or window, cap or window), window, field),
        stream=value.get("stream") is True,
        usage=options.get("include_usage") is True,
        thinks=chat and _thinks(value),
        ignore_eos=value.get("ignore_eos") is True,
        model=value.get("model") or model,
    )


def _object(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise BadRequest("", "request body is not a JSON object")
    return value


def _whole(value: dict[str, Any], name: str) -> int:
    number = value.get(name)
    if number is None:
        return 0
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < 2**31:
        raise BadRequest(name, "expected an integer of at least 1")
    return number


def _prompt(value: object) -> int:
    if isinstance(value, str):
        return tokens(value)
    if isinstance(value, list) and all(isinstance(each, int) for each in value):
        return len(value)
    raise BadRequest("prompt", "expected a string or an array of token ids")


def _messages(value: object) -> int:
    if not isinstance(value, list) or not value:
        raise BadRequest("messages", "must be a non-empty array")
    total = 0
    for message in value:
        content = message.get("content") if isinstance(message, dict) else None
        if not isinstance(content, str):
            raise BadRequest("messages[].content", "expected a string")
        total += TEMPLATE_TOKENS + tokens(content)
    return total


def _room(prompt: int, answer: int, window: int, field: str) -> int:
    """``answer`` cut to what the window leaves; a prompt that leaves nothing is refused with what to cut."""
    room = window - prompt
    if room <= 0:
        raise BadRequest(
            field,
            f"{prompt} prompt tokens does not fit the {window} token context, which leaves nothing to generate into; "
            f"shorten the prompt by at least {1 - room} tokens",
            "context_length_exceeded",
        )
    return min(answer, room)


def _thinks(value: dict[str, Any]) -> bool:
    effort = value.get("reasoning_effort")
    asked = value.get("enable_thinking", (value.get("chat_template_kwargs") or {}).get("enable_thinking"))
    return asked is not False and effort not in ("none", "minimal")
