"""Which conversation a prompt belongs to, told by digests of its beginning: no text is kept, and none can be read back.

A prompt is one string of bytes that only grows while a conversation goes on. Its identity is the digest of all of it;
digests after every ``BLOCK_BYTES`` say how much two prompts share. Being wrong here costs time, never a wrong answer:
llama-server compares the tokens of a slot with those of the prompt and reuses only what is equal
(``server_tokens::get_common_prefix`` in tools/server/server-context.cpp).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass

BLOCK_BYTES = 4096
"""About a thousand tokens of text: what is shared below that is not worth a move."""
_HEAD = ("model", "tools", "chat_template_kwargs")
"""What a chat template writes before the first message, or picks another template by."""


@dataclass(frozen=True, slots=True)
class Prefix:
    """Digests of one prompt: of all its ``bytes``, and of its first 1, 2, ... blocks."""

    bytes: int
    digest: str
    blocks: tuple[str, ...] = ()


class Text:
    """The bytes of one prompt while a request is being placed."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._states = [hashlib.blake2b(digest_size=16)]
        for at in range(BLOCK_BYTES, len(data) + 1, BLOCK_BYTES):
            state = self._states[-1].copy()
            state.update(data[at - BLOCK_BYTES : at])
            self._states.append(state)
        self.prefix = Prefix(len(data), self.digest_at(len(data)), tuple(s.hexdigest() for s in self._states[1:]))

    def digest_at(self, size: int) -> str:
        """The digest of the first ``size`` bytes, of which there must be as many."""
        block = size // BLOCK_BYTES
        state = self._states[block].copy()
        state.update(self._data[block * BLOCK_BYTES : size])
        return state.hexdigest()

    def begins_with(self, other: Prefix) -> bool:
        """True if the whole of ``other`` is the beginning of this."""
        return other.bytes <= self.prefix.bytes and self.digest_at(other.bytes) == other.digest


def text_of(path: str, body: Mapping[str, object]) -> Text | None:
    """The prompt of a request, or ``None`` where one slot cannot serve it: a batch of prompts, an adapter of its own.

    A slot's state says nothing of the adapters (``lora``) that it was computed with, so such a request is left alone.
    """
    if body.get("lora") or body.get("cache_prompt") is False or body.get("id_slot") is not None:
        return None
    head = json.dumps([path, *(body.get(key) for key in _HEAD)], sort_keys=True, default=str)
    if isinstance(messages := body.get("messages"), list):
        parts = [json.dumps(message, sort_keys=True, ensure_ascii=False, default=str) for message in messages]
    elif isinstance(prompt := body.get("prompt"), str):
        parts = [prompt]
    elif isinstance(prompt, list) and prompt and all(isinstance(token, int) for token in prompt):
        parts = [",".join(str(token) for token in prompt) + ","]
    else:
        return None
    return Text("\n".join([head, *parts]).encode("utf-8", "surrogatepass"))
