"""What a request's body says of its size: prompts, the longest answer, answers at once. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

Body = Mapping[str, object]


@dataclass(frozen=True)
class Prompt:
    """One request that takes KV tokens. ``body`` is the parsed JSON and belongs to the caller: it is never kept."""

    path: str
    body: Body
    max_tokens: int | None
    choices: int = 1

    @classmethod
    def of(cls, path: str, body: object) -> Prompt | None:
        """The request on ``path`` (no query); ``None`` for a path that takes no KV tokens, which passes uncounted."""
        if path not in ("/v1/chat/completions", "/v1/completions") or not isinstance(body, dict):
            return None
        limit = body.get("max_completion_tokens", body.get("max_tokens"))
        return cls(path, body, limit if isinstance(limit, int) else None)
