"""One streamed completion, read as it comes: what it counted, what it finished with, or why it failed."""

from __future__ import annotations

import codecs
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Literal

from archonctl.probe.answers import read_refusal, refused
from archonctl.probe.body import Stream
from archonctl.probe.faults import Fault, unseen
from archonctl.probe.jsonread import as_int, as_str, parse_json, pick
from archonctl.probe.session import Session
from archonctl.probe.shape import Shape
from archonctl.probe.sse import SseParser

Change = Literal["", "progress", "token", "finish"]
_FIELDS = (b"data:", b"event:", b"id:", b"retry:", b"error:", b":")
_TELLING = 6
_BLANK = codecs.BOM_UTF8 + b" \r\n\t"


@dataclass(slots=True)
class Seen:
    """What one stream has shown so far. ``tokens`` is a lower bound unless the engine counts in every event."""

    tokens: int = 0
    events: int = 0
    processed: int = 0
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    finish_reason: str = ""
    finished: bool = False
    counted: bool = False
    """True if the engine counts while it answers, so that a token is seen even if its text is held back."""
    over: bool = False
    drafted: int = 0
    accepted: int = 0
    cached_tokens: int | None = None
    """Prompt tokens from the prefix cache; None where the engine does not say."""

    def absorb(self, value: object) -> Change:
        """Take one event in."""
        before = self.tokens
        choice = pick(value, "choices", 0)
        if _has_text(choice):
            self.events += 1
        self._count(value)
        self.tokens = max(self.tokens, self.events, self.completion_tokens or 0)
        reason = as_str(pick(choice, "finish_reason"))
        if reason and not self.finished:
            self.finish_reason, self.finished = reason, True
            return "finish"
        if self.tokens > before:
            return "token"
        processed = as_int(pick(value, "prompt_progress", "processed"))
        if processed is not None and processed > self.processed:
            self.processed = processed
            return "progress"
        return ""

    def _count(self, value: object) -> None:
        """vLLM and SGLang count in ``usage``, llama.cpp in ``timings`` (before the last event) and ``usage``."""
        prompt = as_int(pick(value, "usage", "prompt_tokens"))
        done = as_int(pick(value, "usage", "completion_tokens"))
        if done is None:
            done = as_int(pick(value, "timings", "predicted_n"))
        if prompt:  # a gateway that does not know the count says 0, which no prompt has
            self.prompt_tokens = prompt
        cached = as_int(pick(value, "usage", "prompt_tokens_details", "cached_tokens"))
        cached = as_int(pick(value, "timings", "cache_n")) if cached is None else cached
        self.cached_tokens = self.cached_tokens if cached is None else cached
        self.drafted = as_int(pick(value, "timings", "draft_n")) or self.drafted
        self.accepted = as_int(pick(value, "timings", "draft_n_accepted")) or self.accepted
        if done is not None:
            self.completion_tokens = done
            self.counted = self.counted or not self.finished


def _has_text(choice: object) -> bool:
    delta = pick(choice, "delta")
    texts = (pick(choice, "text"), *(pick(delta, key) for key in ("content", "reasoning_content", "reasoning")))
    return any(isinstance(text, str) and text for text in texts) or bool(pick(delta, "tool_calls"))


async def run_stream(
    session: Session, shape: Shape, prompt: str, max_tokens: int, on_change: Callable[[Change, Seen], None]
) -> Seen:
    """Ask for ``max_tokens`` and follow the answer to its end; the caller sets the deadline. Raises Fault."""
    seen, what = Seen(), f"POST {shape.path}"
    async with session.http.open("POST", shape.path, shape.body(prompt, max_tokens, stream=True)) as stream:
        if stream.status != 200:
            raise await _refusal(session, stream, what)
        parser = SseParser()
        async with aclosing(_events(session, stream, what)) as events:
            async for block in events:
                for payload in parser.feed(block):
                    _take(session, seen, payload, what, on_change)
                if seen.over:
                    break
            else:
                for payload in parser.end():
                    _take(session, seen, payload, what, on_change)
    if not seen.finished:
        raise Fault(
            "stream-cut",
            f"{what}: the stream ended after {seen.tokens:,} tokens without a finish_reason",
            expected="a finish_reason",
            actual=f"{seen.tokens:,} tokens, then nothing",
        )
    return seen


async def _events(session: Session, stream: Stream, what: str) -> AsyncGenerator[bytes, None]:
    """The blocks of an event stream. Clients read one under any content type: what begins like one is one."""
    async with aclosing(stream.blocks(session.limits.stream_bytes)) as blocks:
        if stream.content_type != "text/event-stream":
            begun = b""
            async for block in blocks:
                begun += block
                if len(begun.lstrip(_BLANK)) >= _TELLING:
                    break
            if not begun.lstrip(_BLANK).startswith(_FIELDS):
                raise await _no_stream(session, stream, what, begun, blocks)
            yield begun
        async for block in blocks:
            yield block


def _take(session: Session, seen: Seen, payload: bytes, what: str, on_change: Callable[[Change, Seen], None]) -> None:
    if payload.lstrip().startswith(b"[DONE]"):
        seen.over = True
        return
    try:
        value = parse_json(payload)
    except Fault as fault:
        fault.evidence = session.http.excerpt(payload)
        raise
    refusal = read_refusal(value)
    if refusal is not None:
        message = session.http.excerpt(refusal.message)
        found = refused(refusal.status or 500, refusal, message, f"{what}, an error inside the stream")
        if found.code in ("engine-error", "request-refused"):
            found.code = "error-in-200"
        raise found
    session.must_be_the_model(as_str(pick(value, "model")))
    change = seen.absorb(value)
    if change:
        on_change(change, seen)


async def _refusal(session: Session, stream: Stream, what: str) -> Fault:
    body = await stream.rest(session.limits.body_bytes)
    said = session.http.excerpt(body)
    if stream.status in (401, 403):
        return session.http.auth_fault(stream.status, what, said)
    try:
        refusal = read_refusal(parse_json(body))
    except Fault:
        refusal = None  # a refusal that is no JSON is still a refusal: the excerpt is the evidence
    message = session.http.excerpt(refusal.message) if refusal else said
    return refused(stream.status, refusal, message, what, stream.retry_after)


async def _no_stream(session: Session, stream: Stream, what: str, begun: bytes, blocks: AsyncIterator[bytes]) -> Fault:
    body = await stream.rest(session.limits.body_bytes, begun, blocks)
    said = session.http.excerpt(body)
    refusal = read_refusal(session.http.read_json(stream.content_type, body, what))
    if refusal is not None:
        return Fault("error-in-200", f"{what} answered HTTP 200 with an error inside: {said}", evidence=said)
    return unseen(
        "stream-not-supported",
        f"{what} was asked for a stream and answered whole: nothing shows when each sequence was held",
        expected="text/event-stream",
        actual=stream.content_type,
        evidence=said,
    )
