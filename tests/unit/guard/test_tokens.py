"""A bound that holds first, the engine's own count where it does not fit, and little asked of the engine."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from archonctl.guard.cache import Cache
from archonctl.guard.prompt import Prompt
from archonctl.guard.tokens import TokenCounter
from archonctl.guard.values import Ask

CHAT = "/v1/chat/completions"
Message = dict[str, str]


def chatml(messages: list[Message]) -> str:
    return "".join(f"<{m['role']}>{m['content'].strip()}</>" for m in messages) + "<assistant>"


def twice(messages: list[Message]) -> str:
    return chatml([{**m, "content": m["content"] * 2} for m in messages])


class Engine:
    """An engine whose tokens are the bytes of a text; special tokens are one each."""

    def __init__(self, kind: str, template: Callable[[list[Message]], str] = chatml) -> None:
        self.kind, self.template, self.asked = kind, template, list[str]()
        self.is_up = True

    def tokens(self, text: str) -> int:
        count = len(text.encode())
        for role in ("system", "user", "assistant", "tool"):
            count -= text.count(f"<{role}>") * (len(role) + 1)
        return count - 2 * text.count("</>") + 1  # and one before it all

    async def post(self, path: str, body: bytes) -> tuple[int, bytes]:
        if not self.is_up:
            raise ConnectionRefusedError
        self.asked.append(path)
        answer = self.answer(path, json.loads(body))
        return (404, b"{}") if answer is None else (200, json.dumps(answer).encode())

    def answer(self, path: str, body: dict[str, Any]) -> dict[str, Any] | None:
        if path == "/tokenize" and "messages" not in body:
            return {"tokens": [0] * self.tokens(body.get("content", body.get("prompt")))}
        if self.kind == "llamacpp" and path in (f"{CHAT}/input_tokens", "/v1/responses/input_tokens"):
            given = body.get("messages") or body["input"]
            messages = given if isinstance(given, list) else [{"role": "user", "content": given}]
            return {"input_tokens": self.tokens(self.template(messages))}
        if self.kind == "old llamacpp" and path == "/apply-template":
            return {"prompt": self.template(body["messages"])}
        if self.kind == "vllm" and path == "/tokenize":
            return {"count": self.tokens(self.template(body["messages"])), "max_model_len": 9, "tokens": []}
        if self.kind == "radiance" and path == CHAT and body["max_tokens"] == 1:
            return {"usage": {"prompt_tokens": self.tokens(self.template(body["messages"]))}}
        return None

    def counter(self) -> TokenCounter:
        return TokenCounter(self.kind.split()[-1], self.post)


def chat(*texts: str, **more: object) -> Prompt:
    roles = ["user", "assistant"]
    messages = [{"role": roles[i % 2], "content": text} for i, text in enumerate(texts)]
    found = Prompt.of(CHAT, {"messages": messages, "max_tokens": 5, **more})
    assert found is not None
    return found


def truth(engine: Engine, prompt: Prompt) -> int:
    messages = prompt.body["messages"]
    assert isinstance(messages, list)
    return engine.tokens(engine.template(messages))


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(test())


async def counted(ask: Ask) -> int:
    assert ask.count is not None
    found = await ask.count()
    assert found is not None
    return found[0]


@pytest.mark.parametrize("kind", ["llamacpp", "old llamacpp", "vllm", "radiance"])
def test_every_engine_s_way_of_counting_gives_a_bound_and_then_the_count(kind: str) -> None:
    async def test() -> None:
        engine = Engine(kind)
        counter = engine.counter()
        prompt = chat("  hello  ", "good morning", "x" * 100)
        ask = await counter.ask("a", prompt)
        right = truth(engine, prompt)
        assert not ask.exact
        assert right <= ask.prompt_tokens <= right + 20
        found = await counted(ask)
        assert found == right + (4 if kind == "radiance" else 0), "its texts one by one: the template strips 4 spaces"
        again = await counter.ask("b", prompt)
        assert (again.exact, again.prompt_tokens) == (True, found)

    run(test)


def test_a_shape_that_is_known_costs_no_question() -> None:
    async def test() -> None:
        engine = Engine("llamacpp")
        counter = engine.counter()
        await counter.ask("a", chat("hello", seed=1))
        asked = len(engine.asked)
        for number in range(20):
            ask = await counter.ask("a", chat(f"message {number}", seed=number, temperature=0.5))
            assert not ask.exact
        assert len(engine.asked) == asked

    run(test)


def test_a_conversation_that_grows_is_bounded_from_what_it_was_counted_to_have() -> None:
    async def test() -> None:
        engine = Engine("llamacpp", lambda messages: chatml(messages).replace(" ", ""))  # far fewer tokens than bytes
        counter = engine.counter()
        long = "word " * 10_000
        first = await counted(await counter.ask("a", chat(long)))
        assert first < 41_000
        grown = await counter.ask("a", chat(long, "ok", "go on"))
        assert not grown.exact
        assert truth(engine, chat(long, "ok", "go on")) <= grown.prompt_tokens < first + 30
        other = await counter.ask("a", chat("word " * 10_001, "ok", "go on"))
        assert other.prompt_tokens > 50_000, "another beginning"

    run(test)


def test_a_template_that_shows_a_text_twice_is_found_out_and_always_counted() -> None:
    async def test() -> None:
        engine = Engine("llamacpp", twice)
        prompt = chat("hello", "there", "x" * 50)
        ask = await engine.counter().ask("a", prompt)
        assert (ask.exact, ask.prompt_tokens) == (True, truth(engine, prompt))

    run(test)


def test_an_engine_that_is_away_leaves_a_prompt_unknown_and_is_asked_again_later() -> None:
    async def test() -> None:
        engine = Engine("llamacpp")
        counter = engine.counter()
        engine.is_up = False
        assert (await counter.ask("a", chat("hello"))).unknown == "count-failed"
        engine.is_up = True
        counter.forget()
        assert (await counter.ask("a", chat("hello"))).unknown == ""
        ask = await counter.ask("a", chat("x" * 100))
        engine.is_up = False
        assert ask.count is not None
        assert await ask.count() is None

    run(test)


def test_those_who_come_while_the_way_of_counting_is_found_out_wait_for_it() -> None:
    async def test() -> None:
        counter = Engine("radiance").counter()
        asks = await asyncio.gather(*(counter.ask("a", chat("hello" * n)) for n in range(1, 9)))
        assert [ask.unknown for ask in asks] == [""] * 8

    run(test)


def test_another_engine_is_not_taken_for_the_one_before() -> None:
    async def test() -> None:
        engine = Engine("llamacpp")
        counter = engine.counter()
        await counted(await counter.ask("a", chat("hello")))
        counter.forget()
        engine.template = lambda messages: chatml(messages) * 3
        ask = await counter.ask("a", chat("hello"))
        assert ask.prompt_tokens == truth(engine, chat("hello"))

    run(test)


def test_token_ids_need_no_question_and_texts_one_for_what_is_put_around_them() -> None:
    async def test() -> None:
        engine = Engine("vllm")
        counter = engine.counter()
        ids = Prompt.of("/v1/completions", {"prompt": [[1, 2], [3]], "max_tokens": 7})
        assert ids is not None
        ask = await counter.ask("a", ids)
        assert (ask.exact, ask.prompts, engine.asked) == (True, (2, 1), [])
        texts = Prompt.of("/v1/completions", {"prompt": ["héllo", "b"]})
        assert texts is not None
        ask = await counter.ask("a", texts)
        assert (ask.exact, ask.max_tokens) == (False, 16), "vLLM's default for completions"
        assert ask.prompts == (6 + 3, 1 + 3)
        assert ask.count is not None
        assert await ask.count() == (7, 2)

    run(test)


def test_a_response_is_counted_beside_its_own_path() -> None:
    async def test() -> None:
        engine = Engine("llamacpp")
        prompt = Prompt.of("/v1/responses", {"input": "hello there"})
        assert prompt is not None
        ask = await engine.counter().ask("a", prompt)
        assert engine.asked == ["/v1/responses/input_tokens"] * 2
        assert await counted(ask) == engine.tokens(chatml([{"role": "user", "content": "hello there"}]))
        unknown = await Engine("vllm").counter().ask("a", prompt)
        assert unknown.unknown == "count-failed"

    run(test)


TEXT = st.text(st.characters(codec="utf-8"), max_size=30)


@settings(max_examples=60, deadline=None)
@given(st.lists(TEXT, min_size=1, max_size=5), TEXT)
def test_no_chat_has_more_tokens_than_its_bound(texts: list[str], next_one: str) -> None:
    """With tokens of one byte each nothing is to spare; the conversation then grows by a turn."""

    async def test() -> None:
        engine = Engine("llamacpp")
        counter = engine.counter()
        prompt = chat(*texts)
        ask = await counter.ask("a", prompt)
        assert ask.prompt_tokens >= truth(engine, prompt)
        if ask.count is not None:
            assert await counted(ask) == truth(engine, prompt)
        grown = chat(*texts, "ok", next_one)
        assert (await counter.ask("a", grown)).prompt_tokens >= truth(engine, grown)

    run(test)


def test_counts_are_kept_within_bounds_and_the_used_ones_longest() -> None:
    cache = Cache(3 * 256)
    for number in range(3):
        cache.put(bytes([number]), number)
    assert cache.get(b"\0") == 0
    cache.put(b"\3", 3)
    assert len(cache) == 3
    assert cache.get(b"\1") is None
    assert cache.get(b"\0") == 0


def test_of_a_chat_with_images_its_text_and_its_answer_are_held() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 1000}}
    messages = [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": [{"type": "text", "text": "what is this?"}, image, {"type": "text", "text": "é"}]},
    ]

    async def test() -> None:
        engine = Engine("llamacpp")
        prompt = Prompt.of(CHAT, {"messages": messages, "max_tokens": 7})
        assert prompt is not None
        ask = await engine.counter().ask("a", prompt)
        assert (ask.unknown, ask.prompts, ask.max_tokens) == ("media", (8 + 13 + 2,), 7)
        assert engine.asked == []

    asyncio.run(test())
