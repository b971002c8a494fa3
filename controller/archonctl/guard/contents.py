"""A chat taken apart: what people wrote, and the shape around it. Pure.

The shape is the request with every text of a message replaced by a stand-in, without the fields that cannot change a
prompt. Two chats of the same shape are rendered alike by a chat template but for their texts, so the tokens of the
template are counted once for each shape.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import blake2b

Body = Mapping[str, object]
STAND_IN = "x"
_SAMPLING_FIELDS = """
    temperature top_p top_k min_p typical_p top_n_sigma mirostat mirostat_tau mirostat_eta xtc_probability
    xtc_threshold dynatemp_range dynatemp_exponent dry_multiplier dry_base dry_allowed_length dry_penalty_last_n
    dry_sequence_breakers samplers seed stop stop_token_ids min_tokens max_tokens max_completion_tokens
    max_output_tokens n_predict n n_cmpl best_of stream stream_options presence_penalty frequency_penalty
    repeat_penalty repetition_penalty repeat_last_n length_penalty logit_bias logprobs top_logprobs n_probs
    prompt_logprobs ignore_eos skip_special_tokens user metadata store service_tier safety_identifier
    prompt_cache_key prompt_cache_retention cache_prompt cache_salt id_slot n_keep n_discard n_cache_reuse
    timings_per_token return_progress return_tokens return_token_ids post_sampling_probs request_id priority
"""
_SAMPLING = frozenset(_SAMPLING_FIELDS.split())
"""Request fields that no engine shows to its chat template. A field that is not named here belongs to the shape."""
_TEXT_TYPES = frozenset({"text", "input_text", "output_text", "refusal", "summary_text"})
_ESCAPED = frozenset("<>&'")


@dataclass(frozen=True)
class Contents:
    """One chat. ``texts`` are what a template shows of each message as it is; ``bounds`` how many tokens that is at
    most; ``ends`` after how many texts each message ends; ``chain`` a digest of everything up to each message."""

    texts: tuple[str, ...]
    bounds: tuple[int, ...]
    ends: tuple[int, ...]
    chain: tuple[bytes, ...]
    escaped: tuple[bool, ...]
    """Which texts a template may write as JSON."""
    _fill: Callable[[str, int | None], dict[str, object]]

    def shape(self, filler: str = STAND_IN, messages: int | None = None) -> dict[str, object]:
        """The body that counts the shape: each text replaced, and only so many messages."""
        return self._fill(filler, messages)

    def most_tokens_of(self, filler: str) -> int:
        """Tokens at most of the shape's texts, were each of them this one."""
        return sum(_most(filler, is_json=is_json) for is_json in self.escaped)


@dataclass(frozen=True)
class WithMedia:
    """A chat with images, audio or files, whose tokens depend on the engine's encoder. ``text_tokens``: what of it is
    text has at most so many."""

    text_tokens: int


class _NotText(Exception):
    """A chat has no known form."""


def contents_of(form: str, body: Body) -> Contents | WithMedia | None:
    """The chat of a body; None for one of no known form."""
    field = "input" if form == "responses" else "messages"
    if form == "responses" and (body.get("previous_response_id") or body.get("conversation")):
        return None  # the engine has the rest of it
    messages = body.get(field)
    if isinstance(messages, str) and form == "responses":
        messages = [{"role": "user", "content": messages}]
    if not isinstance(messages, list) or not messages:
        return None
    around = {k: v for k, v in body.items() if k not in _SAMPLING and k != field}
    head = "instructions" if form == "responses" else "system" if form == "messages" else ""
    first = around.pop(head, None) if head else None
    try:
        taken = _take_apart(first, messages)
        return WithMedia(sum(taken.bounds)) if taken.has_media else _contents(taken, around, field, head)
    except (_NotText, RecursionError):
        return None


@dataclass
class _Taken:
    """Messages with a hole for each text; ``first`` is what stands before them (instructions), with holes too."""

    first: object
    messages: list[object]
    texts: list[str]
    bounds: list[int]
    escaped: list[bool]
    ends: list[int]
    has_media: bool = False


class _Hole:
    """Where a text was."""


_HOLE = _Hole()


def _take_apart(first: object, messages: list[object]) -> _Taken:
    taken = _Taken(None, [], [], [], [], [])
    if first is not None:
        taken.first = _content(first, taken, is_json=False)
    for message in messages:
        if not isinstance(message, dict):
            raise _NotText
        taken.messages.append(_message(message, taken))
        taken.ends.append(len(taken.texts))
    return taken


def _message(message: Body, taken: _Taken) -> dict[str, object]:
    """A tool's answer may be shown as JSON by a template, with its quotes and angle brackets escaped."""
    is_json = message.get("role") in ("tool", "function") or str(message.get("type", "")).endswith("_output")
    found = dict(message)
    for name in ("content", "reasoning_content", "output"):
        if found.get(name) is not None:
            found[name] = _content(found[name], taken, is_json=is_json)
    return found


def _content(value: object, taken: _Taken, *, is_json: bool) -> object:
    if isinstance(value, str):
        if not value:
            return value
        taken.texts.append(value)
        taken.bounds.append(_most(value, is_json=is_json))
        taken.escaped.append(is_json)
        return _HOLE
    if not isinstance(value, list):
        raise _NotText
    return [_part(part, taken, is_json=is_json) for part in value]


def _part(part: object, taken: _Taken, *, is_json: bool) -> object:
    if isinstance(part, str):
        return _content(part, taken, is_json=is_json)
    if not isinstance(part, dict):
        raise _NotText
    kind = part.get("type")
    if kind in _TEXT_TYPES and isinstance(part.get("text"), str):
        return {**part, "text": _content(part["text"], taken, is_json=is_json)}
    if kind == "tool_result":
        inner = part.get("content")
        return {**part, "content": inner if inner is None else _content(inner, taken, is_json=True)}
    if kind in ("tool_use", "thinking", "redacted_thinking"):
        return part  # belongs to the shape as it is
    taken.has_media = True  # images, audio, files
    return part


def _contents(taken: _Taken, around: dict[str, object], field: str, head: str) -> Contents:
    def fill(filler: str, messages: int | None) -> dict[str, object]:
        before = {head: _filled(taken.first, filler)} if taken.first is not None else {}
        return {**around, **before, field: _filled(taken.messages[:messages], filler)}

    digest = blake2b(_bytes([around, _filled(taken.first, "")]), digest_size=16)
    chain, begin = [], 0
    for message, end in zip(taken.messages, taken.ends, strict=True):
        digest.update(_bytes(_filled(message, "")))
        for text in taken.texts[begin:end]:
            raw = text.encode("utf-8", "surrogatepass")
            digest.update(b"%d:" % len(raw) + raw)
        begin = end
        chain.append(digest.copy().digest())
    texts, bounds, escaped = tuple(taken.texts), tuple(taken.bounds), tuple(taken.escaped)
    return Contents(texts, bounds, tuple(taken.ends), tuple(chain), escaped, fill)


def _filled(value: object, filler: str) -> object:
    if value is _HOLE:
        return filler
    if isinstance(value, list):
        return [_filled(each, filler) for each in value]
    if isinstance(value, dict):
        return {key: _filled(each, filler) for key, each in value.items()}
    return value


def _bytes(value: object) -> bytes:
    return json.dumps(value, sort_keys=True).encode()


def digest_of(value: object) -> bytes:
    """A digest of plain JSON values."""
    return blake2b(_bytes(value), digest_size=16).digest()


def most_tokens(text: str) -> int:
    """Tokens of a text at most: its bytes.

    Tokenizers of language models cut a text into pieces that cover it and do not overlap. Each piece of a byte-level
    BPE (GPT-2, Llama 3, Qwen, DeepSeek) or of a WordPiece is one byte of UTF-8 at least; of SentencePiece one
    character, or with byte fallback one byte of a character that is not in the vocabulary. So there are no more pieces
    than bytes. A normaliser before it may make a text longer: Qwen's files ask for NFC, T5's for NFKC. Where either
    would, its length counts (ASCII is the same in all of them). The strings that llama.cpp tests its tokenizers with
    (models/ggml-vocab-*.gguf.inp, 15 vocabularies) agree. What is added around (BOS, EOS, a space before) is not
    of the text; the shape, or ``ADDED_TOKENS``, has it.
    """
    if text.isascii():
        return len(text)
    from unicodedata import is_normalized, normalize

    forms = [text, *(normalize(form, text) for form in ("NFC", "NFKC") if not is_normalized(form, text))]
    return max(len(each.encode("utf-8", "surrogatepass")) for each in forms)


def _most(text: str, *, is_json: bool) -> int:
    """The same where a template may write it as JSON: Jinja's ``tojson`` writes ASCII and escapes ``<>&'``; others may
    leave what is not ASCII as it is."""
    if not is_json:
        return most_tokens(text)
    escaped = len(json.dumps(text)) + 5 * sum(map(text.count, _ESCAPED))
    return escaped if text.isascii() else escaped + most_tokens(text)
