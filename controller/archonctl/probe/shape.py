"""The requests that the capacity legs send, in the dialect that the engine turns out to speak."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from archonctl.engines.base import Api

_CONTINUOUS = "continuous_usage_stats"
_TEMPERATURE = 1
"""Greedy answers may repeat one token for ever; where that is half a character, an engine sends nothing at all."""


@dataclass(frozen=True, slots=True)
class Shape:
    """One dialect: raw completions where the engine has them, chat where it does not.

    ``extra`` holds fields that are wanted but not needed; an engine that refuses one by name gets none of it.
    """

    completions: str
    chat: str
    model: str
    extra: Mapping[str, object] = field(default_factory=dict)
    stream_options: Mapping[str, bool] = field(default_factory=dict)

    @classmethod
    def first(cls, api: Api, model: str) -> Shape:
        """Everything that is wanted: exact usage in every event, no end before the budget, no prefix cache."""
        return cls(
            api.completions,
            api.chat,
            model,
            {"temperature": _TEMPERATURE, "ignore_eos": True, **api.completion_extra},
            {"include_usage": True, _CONTINUOUS: True},
        )

    @property
    def path(self) -> str:
        """Where to POST."""
        return self.completions or self.chat

    def body(self, prompt: str, max_tokens: int, *, stream: bool) -> bytes:
        """The request as JSON bytes."""
        request: dict[str, object] = {"max_tokens": max_tokens, "stream": stream, **self.extra}
        if self.model:
            request["model"] = self.model
        if self.completions:
            request["prompt"] = prompt
        else:
            request["messages"] = [{"role": "user", "content": prompt}]
        if stream and self.stream_options:
            request["stream_options"] = dict(self.stream_options)
        return json.dumps(request).encode()

    def without(self, refusal: str) -> Shape | None:
        """The shape without the first optional field that ``refusal`` names, or None if it names none."""
        if _CONTINUOUS in refusal and _CONTINUOUS in self.stream_options:
            return replace(self, stream_options={k: v for k, v in self.stream_options.items() if k != _CONTINUOUS})
        if "stream_options" in refusal and self.stream_options:
            return self.without(_CONTINUOUS) or replace(self, stream_options={})
        for name in self.extra:
            if name in refusal:
                return replace(self, extra={k: v for k, v in self.extra.items() if k != name})
        return None

    def as_chat(self) -> Shape | None:
        """The same over chat, or None if this is chat already or there is none."""
        return replace(self, completions="") if self.completions and self.chat else None
