"""Tokens of a prompt: a proven upper bound first, the engine's own count only where that does not fit.

The bound of a chat is the tokens of its shape (counted by the engine once for each shape, see ``contents``) and the
bytes of its texts (``contents.most_tokens``). It holds if the template shows each text at most once and decides nothing
by what a text says but to leave some of it out (reasoning of earlier turns, white space). That is tried for each shape:
it is counted again with texts that hardly any vocabulary has in one piece, and where the count grows by more than the
law allows, the law is not used for that shape: it is counted exactly each time.

Counts are cached by prefix. A conversation that grows by a turn costs at most what it was counted to have, the tokens
by which its shape grew, and the bytes of what is new: templates close each message with a special token, and pieces
never reach across one.

What is not text (images, audio) depends on the engine's encoder and is unknown.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from hashlib import blake2b

from archonctl.guard.cache import Cache
from archonctl.guard.contents import STAND_IN, Contents, digest_of, most_tokens
from archonctl.guard.counting import Asking, Post
from archonctl.guard.metrics import GuardMetrics
from archonctl.guard.prompt import Prompt, Text
from archonctl.guard.values import Ask, Counts

__all__ = ["Post", "TokenCounter"]
ADDED_TOKENS = 8
"""Around a text at most, where the engine does not tell: BOS, EOS, a space; some models have two or three of them."""
_RARE = "\U0010fffd" * 8
"""A private character (Unicode 16, 23.5): four bytes of UTF-8 that no text has made a vocabulary learn as one."""
_LAWLESS = -1
_DEFAULT_ANSWER = {"vllm": 16, "sglang": 16}
"""Of /v1/completions without max_tokens: vllm/entrypoints/openai/completion/protocol.py (0.32.0) and
sglang/srt/entrypoints/openai/protocol.py (main, 2026), class CompletionRequest of each."""


class TokenCounter:
    """Counts for one engine. ``post`` asks it; what is kept is bounded to ``cache_bytes``."""

    def __init__(
        self, engine: str, post: Post, *, cache_bytes: int = 16 << 20, metrics: GuardMetrics | None = None
    ) -> None:
        self._engine = engine
        self._asking = Asking(engine, post)
        self._metrics = metrics or GuardMetrics()
        self._exact = Cache(cache_bytes // 2)
        self._shapes = Cache(cache_bytes // 2)
        self._added: int | None = None

    def forget(self) -> None:
        """Drop what was learned of the engine: another one answers now."""
        self._exact.clear()
        self._shapes.clear()
        self._added = None
        self._asking.forget()

    async def ask(self, client: str, prompt: Prompt) -> Ask:
        """What admission needs to know of a request. Does not raise: what cannot be sized is said to be unknown."""
        limit = prompt.max_tokens
        if limit is None and prompt.form == "text" and prompt.path.startswith("/v1/"):
            limit = _DEFAULT_ANSWER.get(self._engine)
        ask = Ask(client, (0,), exact=False, max_tokens=limit, choices=prompt.choices, unknown=prompt.unknown)
        if ask.unknown:
            return replace(ask, prompts=tuple(known for known in prompt.texts if isinstance(known, int)) or (0,))
        try:
            if prompt.contents is not None:
                return await self._chat(ask, prompt, prompt.contents)
            return await self._texts(ask, prompt)
        except RecursionError:  # lists in lists: nothing that an engine would take
            return replace(ask, unknown="prompt")

    async def _chat(self, ask: Ask, prompt: Prompt, contents: Contents) -> Ask:
        known = self._exact.get(contents.chain[-1])
        if known is not None:
            self._metrics.counted("cached")
            return replace(ask, prompts=(known,), exact=True)
        count = partial(self._count_chat, prompt, contents)
        shape = await self._shape(prompt, contents, len(contents.chain))
        if shape is None:
            return replace(ask, prompts=(sum(contents.bounds),), unknown="count-failed")
        if shape == _LAWLESS:
            counts = await count()
            if counts is None:
                return replace(ask, prompts=(sum(contents.bounds),), unknown="template")
            return replace(ask, prompts=counts, exact=True)
        bound = await self._least_bound(prompt, contents, shape)
        return replace(ask, prompts=(bound,), count=count)

    async def _least_bound(self, prompt: Prompt, contents: Contents, shape: int) -> int:
        """From the longest beginning of the conversation that was counted; else from the shape alone."""
        bound = shape + sum(contents.bounds)
        for messages in range(len(contents.chain) - 1, 0, -1):
            counted = self._exact.get(contents.chain[messages - 1])
            if counted is None:
                continue
            before = await self._shape(prompt, contents, messages)
            if before is None or before == _LAWLESS:
                break
            return min(bound, counted + max(0, shape - before) + sum(contents.bounds[contents.ends[messages - 1] :]))
        return bound

    async def _shape(self, prompt: Prompt, contents: Contents, messages: int) -> int | None:
        """Tokens of a shape; ``_LAWLESS`` where the law does not hold for it; None where the engine does not count."""
        body = contents.shape(messages=messages)
        key = digest_of([prompt.form, body])
        found = self._shapes.get(key)
        if found is not None:
            return found
        tokens = await self._asking.chat(prompt.form, prompt.path, body)
        rare = await self._asking.chat(prompt.form, prompt.path, contents.shape(_RARE, messages))
        if tokens is None or rare is None:
            return None
        found = tokens if rare <= tokens + contents.most_tokens_of(_RARE) else _LAWLESS
        self._shapes.put(key, found)
        return found

    async def _count_chat(self, prompt: Prompt, contents: Contents) -> Counts | None:
        key = contents.chain[-1]
        known = self._exact.get(key)
        tokens = known if known is not None else await self._ask_chat(prompt, contents)
        if tokens is None:
            self._metrics.counted("failed")
            return None
        self._metrics.counted("exact" if known is None else "cached")
        self._exact.put(key, tokens)
        return (tokens,)

    async def _ask_chat(self, prompt: Prompt, contents: Contents) -> int | None:
        """By the engine's own count of the chat; where it has none, by its shape, in which each of its texts takes the
        place of a stand-in. What a tokenizer puts around a text is in both counts."""
        if await self._asking.counts_chats(prompt.form, contents.shape()):
            return await self._asking.chat(prompt.form, prompt.path, prompt.body)
        shape, one = await self._shape(prompt, contents, len(contents.chain)), await self._count_text(STAND_IN)
        if shape is None or shape == _LAWLESS or one is None:
            return None
        for text in contents.texts:
            tokens = await self._count_text(text)
            if tokens is None:
                return None
            shape += tokens - one
        return shape

    async def _texts(self, ask: Ask, prompt: Prompt) -> Ask:
        if all(isinstance(text, int) for text in prompt.texts) and prompt.form != "infill":
            return replace(ask, prompts=tuple(map(int, prompt.texts)), exact=True)
        added = await self._added_tokens()
        bounds = tuple(self._bound(text, added) for text in prompt.texts)
        count = None if prompt.form == "infill" else partial(self._count_texts, prompt.texts)
        return replace(ask, prompts=bounds, count=count)

    def _bound(self, text: Text, added: int) -> int:
        if isinstance(text, int):
            return text + added
        known = self._exact.get(_digest(text))
        return most_tokens(text) + added if known is None else known

    async def _added_tokens(self) -> int:
        """What the engine puts around a text: its count of one letter, and one more, since a space before it may be a
        piece with the letter and not with what another text begins with."""
        if self._added is None:
            one = await self._asking.text(STAND_IN)
            if one is None:
                return ADDED_TOKENS
            self._added = one + 1
        return self._added

    async def _count_texts(self, texts: tuple[Text, ...]) -> Counts | None:
        counts = [text if isinstance(text, int) else await self._count_text(text) for text in texts]
        known = tuple(each for each in counts if each is not None)
        if len(known) != len(counts):
            self._metrics.counted("failed")
            return None
        self._metrics.counted("exact")
        return known

    async def _count_text(self, text: str) -> int | None:
        key = _digest(text)
        tokens = self._exact.get(key)
        if tokens is None:
            tokens = await self._asking.text(text)
            if tokens is not None:
                self._exact.put(key, tokens)
        return tokens


def _digest(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16, person=b"text").digest()
