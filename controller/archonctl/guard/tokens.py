"""Tokens of a prompt: a proven upper bound first, the engine's own count only where that does not fit."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable

from archonctl.guard.prompt import Prompt
from archonctl.guard.values import Ask

Post = Callable[[str, bytes], Awaitable[tuple[int, bytes]]]
"""Asks the engine: path and JSON body, gives status and body. Raises OSError or TimeoutError where it cannot."""


class TokenCounter:
    """Counts for one engine. ``post`` asks it; everything that is kept is bounded in bytes."""

    def __init__(self, engine: str, post: Post, *, cache_bytes: int = 32 << 20) -> None:
        self._engine, self._post, self._cache_bytes = engine, post, cache_bytes

    async def ask(self, client: str, prompt: Prompt) -> Ask:
        """What admission needs to know of a request."""
        return Ask(client, (len(json.dumps(prompt.body)),), exact=False, max_tokens=prompt.max_tokens)

    def forget(self) -> None:
        """Drop what was learned of the engine: another one answers now."""
