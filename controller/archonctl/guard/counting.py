"""Asks an engine how many tokens something is: a text by its tokenizer, a chat with its template.

Engines differ in how a chat is counted; the first way that an engine knows is taken, and remembered:

- ``.../input_tokens`` beside the path itself (llama-server b11434, after OpenAI's reference for responses),
- ``/apply-template`` and then ``/tokenize`` (older llama-server),
- ``/tokenize`` with ``messages`` (vLLM, vllm/entrypoints/serve/tokenize/protocol.py),
- one token of an answer, and ``usage.prompt_tokens`` (any other engine; for shapes only, which are short).
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Literal

from archonctl.engines import adapter
from archonctl.errors import DeclarationError
from archonctl.probe.faults import Fault
from archonctl.probe.jsonread import as_int, parse_json, pick

Post = Callable[[str, bytes], Awaitable[tuple[int, bytes]]]
"""Asks the engine: path and JSON body, gives status and body. Raises OSError (TimeoutError is one) where it cannot."""
Way = Literal["input-tokens", "template", "tokenize", "usage"]
_WAYS: tuple[Way, ...] = ("input-tokens", "template", "tokenize", "usage")
_COUNTS_BESIDE = {"responses": "/v1/responses/input_tokens", "messages": "/v1/messages/count_tokens"}
_TOKENIZE_FIELDS = """
    model messages tools chat_template chat_template_kwargs add_generation_prompt continue_final_message
    add_special_tokens mm_processor_kwargs media_io_kwargs
"""
_TEMPLATE_FIELDS = frozenset(_TOKENIZE_FIELDS.split())
_AGAIN_S = 5.0
"""Between two tries to find a way (a choice: as often as the capacity is looked at)."""
_KWARGS = ("documents", "reasoning_effort")
"""What vLLM's chat request hands to the template beside ``chat_template_kwargs`` (``build_chat_params``)."""


class Asking:
    """The questions for one engine. None wherever it gives no count."""

    def __init__(self, engine: str, post: Post) -> None:
        self._post = post
        self._way: Way | None = None
        self._again_at = 0.0
        self._finding = asyncio.Lock()
        try:
            api = adapter(engine).api
            self._tokenize, self._field, self._extra = api.tokenize, api.tokenize_field, dict(api.tokenize_extra)
        except DeclarationError:  # an engine without an adapter: as vLLM has it, which others follow
            self._tokenize, self._field, self._extra = "/tokenize", "prompt", {}

    def forget(self) -> None:
        """Another engine may answer now."""
        self._way, self._again_at = None, 0.0

    async def text(self, text: str) -> int | None:
        """Tokens of a text, with what is put around it."""
        if not self._tokenize:
            return None
        return _count(await self._json(self._tokenize, {self._field: text, **self._extra}))

    async def counts_chats(self, form: str, sample: Mapping[str, object]) -> bool:
        """True if the engine counts a chat of any length without generating anything."""
        return form in _COUNTS_BESIDE or await self._known_way(sample) not in (None, "usage")

    async def chat(self, form: str, path: str, body: Mapping[str, object]) -> int | None:
        """Tokens of a chat by the engine's template."""
        beside = _COUNTS_BESIDE.get(form)
        if beside is not None:
            return _count(await self._json(beside, _counted(body)))
        way = await self._known_way(body)
        return None if way is None else await self._by(way, path, body)

    async def _known_way(self, body: Mapping[str, object]) -> Way | None:
        """The first way that counts the least chat there is. Where none does, not every request asks again."""
        async with self._finding:
            if self._way is None and time.monotonic() >= self._again_at:
                self._way = await self._find_way(body)
                self._again_at = time.monotonic() + _AGAIN_S
        return self._way

    async def _find_way(self, body: Mapping[str, object]) -> Way | None:
        least: dict[str, object] = {"messages": [{"role": "user", "content": "x"}]}
        if "model" in body:
            least["model"] = body["model"]
        for way in _WAYS:
            if await self._by(way, "/v1/chat/completions", least) is not None:
                return way
        return None

    async def _by(self, way: Way, path: str, body: Mapping[str, object]) -> int | None:
        if way == "input-tokens":
            return _count(await self._json(f"{path}/input_tokens", _counted(body)))
        if way == "template":
            text = pick(await self._json("/apply-template", _counted(body)), "prompt")
            return await self.text(text) if isinstance(text, str) else None
        if way == "tokenize":
            return _count(await self._json(self._tokenize or "/tokenize", _tokenized(body)))
        one = {**body, "max_tokens": 1, "stream": False}
        return as_int(pick(await self._json(path, one), "usage", "prompt_tokens")) or None

    async def _json(self, path: str, body: Mapping[str, object]) -> object:
        try:
            status, raw = await self._post(path, json.dumps(body).encode())
            return parse_json(raw) if status == 200 else None
        except (OSError, Fault, ValueError, RecursionError):  # away, or no JSON: no count is all that matters here
            return None


def _count(value: object) -> int | None:
    """The count in an answer: ``input_tokens``, ``count`` or the length of ``tokens``; None where there is none."""
    counted = as_int(pick(value, "input_tokens")) or as_int(pick(value, "count"))
    tokens = pick(value, "tokens")
    return counted or (len(tokens) if isinstance(tokens, list) else 0) or None


def _counted(body: Mapping[str, object]) -> dict[str, object]:
    return {key: value for key, value in body.items() if key not in ("stream", "stream_options")}


def _tokenized(body: Mapping[str, object]) -> dict[str, object]:
    found = {key: value for key, value in body.items() if key in _TEMPLATE_FIELDS}
    more = {name: body[name] for name in _KWARGS if body.get(name) is not None}
    if "reasoning_effort" in more:
        more["enable_thinking"] = more["reasoning_effort"] != "none"
    own = body.get("chat_template_kwargs")
    if more:
        found["chat_template_kwargs"] = {**more, **(own if isinstance(own, dict) else {})}
    if found.get("continue_final_message") and "add_generation_prompt" not in found:
        found["add_generation_prompt"] = False
    return found
