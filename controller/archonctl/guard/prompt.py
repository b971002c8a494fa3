"""What a request's body says of its size: prompts, the longest answer, answers at once. Pure.

A body may be anything. What has not the form that its path wants is not judged here: it goes to the engine, which has
words of its own for it (``unknown`` is "prompt" then).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from archonctl.guard.contents import Contents, WithMedia, contents_of
from archonctl.probe.jsonread import MOST

Body = Mapping[str, object]
Form = Literal["chat", "responses", "messages", "text", "infill", "embedding", "other"]

PATHS: Mapping[str, Form] = {
    "/v1/chat/completions": "chat",
    "/chat/completions": "chat",
    "/v1/responses": "responses",
    "/responses": "responses",
    "/v1/messages": "messages",
    "/v1/completions": "text",
    "/completions": "text",
    "/completion": "text",
    "/infill": "infill",
    "/v1/embeddings": "embedding",
    "/embeddings": "embedding",
    "/embedding": "embedding",
    "/v1/rerank": "other",
    "/rerank": "other",
    "/v1/reranking": "other",
    "/reranking": "other",
    "/v1/systemone": "other",
    "/generate": "other",
    "/score": "other",
    "/v1/score": "other",
    "/classify": "other",
    "/pooling": "other",
}
"""Paths that fill a KV cache: OpenAI's, Anthropic's, and the engines' own (llama.cpp b11434 tools/server/server.cpp;
vLLM 0.32.0 vllm/entrypoints; SGLang sglang/srt/entrypoints/http_server.py). An engine may have them under a prefix of
its own (llama-server ``--api-prefix``, vLLM ``--root-path``). What an ``other`` one takes is not worked out."""
_NAMES = ("n_predict", "max_completion_tokens", "max_output_tokens", "max_tokens")
_LIMITS: Mapping[Form, tuple[str, ...]] = {
    "chat": _NAMES,
    "responses": ("n_predict", "max_completion_tokens", "max_tokens", "max_output_tokens"),
    "messages": _NAMES,
    "text": _NAMES,
    "infill": _NAMES,
    "embedding": (),
    "other": (),
}
"""Which one counts depends on the engine: llama.cpp takes n_predict before the others, on every path
(server-common.cpp, server-schema.cpp), vLLM knows no n_predict and takes max_completion_tokens before max_tokens
(entrypoints/openai/chat_completion/protocol.py). So the largest counts. The last is the path's own."""
_CHOICES = ("n_cmpl", "n", "best_of")
Text = str | int
"""One prompt: its text, or how many tokens the client made of it."""


@dataclass(frozen=True)
class Prompt:
    """One request that takes KV tokens. ``body`` is the parsed JSON and belongs to the caller."""

    path: str
    form: Form
    body: Body
    texts: tuple[Text, ...] = ()
    """Prompts of a text, infill or embedding request; of a chat with media, how many tokens its text has at most."""
    contents: Contents | None = None
    """The messages of a chat, taken apart; None for the other forms."""
    max_tokens: int | None = None
    choices: int = 1
    unknown: str = ""
    """Why it cannot be sized: ``media`` or ``prompt``; empty where it can."""

    @classmethod
    def of(cls, path: str, body: object) -> Prompt | None:
        """The request on ``path`` (without query); ``None`` for a path that takes no KV tokens, or a body that is no
        object: such a request passes and is not counted."""
        path = known_path(path)
        form = PATHS.get(path)
        if form is None or not isinstance(body, dict):
            return None
        limit = _limit(form, body) if _LIMITS[form] else 0
        choices = max([1, *(_number(body.get(name)) or 1 for name in _CHOICES)]) if _LIMITS[form] else 1
        if form in ("chat", "responses", "messages"):
            found = contents_of(form, body)
            if isinstance(found, Contents):
                return cls(path, form, body, contents=found, max_tokens=limit, choices=choices)
            known, unknown = ((found.text_tokens,), "media") if isinstance(found, WithMedia) else ((), "prompt")
            return cls(path, form, body, known, max_tokens=limit, choices=choices, unknown=unknown)
        texts = _texts_of(form, body)
        return cls(path, form, body, texts or (), max_tokens=limit, choices=choices, unknown="" if texts else "prompt")

    def limited(self, raw: bytes, tokens: int) -> bytes:
        """The body as it was sent, with a longest answer in place of what bounds nothing. It is put at the end: of a
        name that is there twice, every engine takes the last one. What is no number is left for the engine to refuse.
        """
        named = self._without_bound()
        if not named:
            return raw
        head, brace, tail = raw.rpartition(b"}")
        comma = b"," if self.body else b""
        return head + comma + b",".join(b'"%s":%d' % (name.encode(), tokens) for name in named) + brace + tail

    def _without_bound(self) -> list[str]:
        """Names of a longest answer that are there, or should be, and bound nothing."""
        names = _LIMITS[self.form]
        numbers = {name: number for name in names if (number := _number(self.body.get(name))) is not None}
        if any(number >= 0 for number in numbers.values()):
            return [name for name, number in numbers.items() if number < 0]
        open_ = (name for name in names if name in self.body or name == names[-1])
        return [name for name in open_ if name in numbers or self.body.get(name) is None]


def takes_cache(path: str) -> bool:
    """True for a path (without query) whose requests take KV cache."""
    return known_path(path) in PATHS


def known_path(path: str) -> str:
    """The path without what stands before one that is known; itself where none is."""
    at = path.find("/")
    while at >= 0:
        if path[at:] in PATHS:
            return path[at:]
        at = path.find("/", at + 1)
    return path


def _limit(form: Form, body: Body) -> int | None:
    """The longest answer asked for; None for none. llama.cpp's words for no limit are below 0."""
    found = [number for name in _LIMITS[form] if (number := _number(body.get(name))) is not None]
    return None if any(number < 0 for number in found) else max(found, default=None)


def _number(value: object) -> int | None:
    """A number of tokens or answers, as llama.cpp reads it: 3.7 is 3, true is 1. A larger one than any engine has is as
    good as the largest; below 0 it is -1."""
    if not isinstance(value, int | float) or value != value:  # noqa: PLR0124  not a number
        return None
    return int(max(-1, min(value, MOST)))


def _texts_of(form: Form, body: Body) -> tuple[Text, ...] | None:
    if form == "infill":
        return _infill(body)
    if form == "embedding":
        return _texts(body.get("input", body.get("content", body.get("prompt"))))
    return _texts(body.get("prompt")) if form == "text" else None


def _texts(value: object) -> tuple[Text, ...] | None:
    """Prompts as llama.cpp and OpenAI take them: a text, token ids, or a list of either; in llama.cpp also texts and
    ids mixed, which are one prompt (server-common.cpp ``tokenize_input_prompts``). None for anything else."""
    one = _one(value)
    if one is not None or not isinstance(value, list):
        return None if one is None else (one,)
    each_of = [_one(each) for each in value]
    found = tuple(each for each in each_of if each is not None)
    return found if found and len(found) == len(each_of) else None


def _one(value: object) -> Text | None:
    """One prompt; llama.cpp takes a text in an object too. Mixed with ids, a text counts by its bytes."""
    if isinstance(value, dict) and not value.get("multimodal_data"):
        value = value.get("prompt_string")
    if isinstance(value, str):
        return value
    if not isinstance(value, list) or {type(each) for each in value} not in ({int}, {int, str}):
        return None
    return sum(_bytes(each) if isinstance(each, str) else 1 for each in value)


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


_SEPARATOR_TOKENS = 64
"""Around each file of an infill request: separators, marks of its name (server-common.cpp ``format_prompt_infill``)."""


def _infill(body: Body) -> tuple[Text, ...] | None:
    """All parts of an infill request are one prompt, of which the engine may leave out what is too long."""
    parts = [body.get(name, "") for name in ("input_prefix", "input_suffix", "prompt")]
    extra = body.get("input_extra", [])
    if not all(isinstance(part, str) for part in parts) or not isinstance(extra, list):
        return None
    for each in extra:
        if not isinstance(each, dict):
            return None
        parts += [each.get("text", ""), each.get("filename", "")]
    texts = [part for part in parts if isinstance(part, str)]
    return (sum(map(_bytes, texts)) + _SEPARATOR_TOKENS * (1 + len(extra)),)
