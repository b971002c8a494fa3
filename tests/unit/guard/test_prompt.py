"""What a body says of its size, whatever it is."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archonctl.guard.contents import most_tokens
from archonctl.guard.prompt import PATHS, Prompt

CHAT = "/v1/chat/completions"


def of(path: str, body: object) -> Prompt:
    found = Prompt.of(path, body)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("body", "limit", "choices"),
    [
        ({}, None, 1),
        ({"max_tokens": 10}, 10, 1),
        ({"max_completion_tokens": 20, "max_tokens": 10, "n": 3}, 20, 3),
        ({"n_predict": -1}, None, 1),
        ({"max_tokens": None, "n": None}, None, 1),
        ({"max_tokens": "many", "n": True}, None, 1),
        ({"max_tokens": 4, "n_predict": -1}, None, 1),
        ({"max_tokens": -1, "n_predict": 3}, None, 1),
        ({"max_tokens": 5.9, "n": 3.7}, 5, 3),
        ({"max_tokens": True}, 1, 1),
        ({"max_tokens": float("nan"), "n": float("inf")}, None, 2**53),
        ({"max_tokens": 3, "n_predict": [7]}, 3, 1),
        ({"max_tokens": 10**400}, 2**53, 1),
    ],
)
def test_the_longest_answer_and_the_choices(body: Mapping[str, Any], limit: int | None, choices: int) -> None:
    found = of(CHAT, {"messages": [{"role": "user", "content": "hi"}], **body})
    assert (found.max_tokens, found.choices, found.unknown) == (limit, choices, "")


@pytest.mark.parametrize(
    ("prompt", "texts"),
    [
        ("one", ("one",)),
        ([1, 2, 3], (3,)),
        (["one", "two"], ("one", "two")),
        ([[1, 2], [3]], (2, 1)),
        (["one", [1, 2]], ("one", 2)),
        ([12, "é"], (3,)),
        ("", ("",)),
        ([], ()),
        ([None], ()),
        ([{"prompt_string": "x"}, "y"], ("x", "y")),
        ({"prompt_string": "x", "multimodal_data": ["aW1n"]}, ()),
        ([["a", "b"]], ()),
    ],
)
def test_prompts_of_a_completion(prompt: object, texts: tuple[object, ...]) -> None:
    found = of("/v1/completions", {"prompt": prompt})
    assert found.texts == texts
    assert found.unknown == ("" if texts else "prompt")


@pytest.mark.parametrize("name", ["n_predict", "max_completion_tokens", "max_tokens", "max_output_tokens"])
def test_a_longest_answer_counts_by_every_name_that_an_engine_takes_on_any_path(name: str) -> None:
    assert of("/v1/responses", {"input": "hi", "max_output_tokens": 3, name: 9}).max_tokens == 9


def test_only_what_an_engine_reads_as_the_prompt_counts_as_one() -> None:
    assert of("/v1/completions", {"prompt": "long", "input": "x", "content": "y"}).texts == ("long",)
    assert of("/v1/embeddings", {"input": "long", "prompt": "x"}).texts == ("long",)


@pytest.mark.parametrize("path", ["/engine/v1/chat/completions", "//v1/chat/completions", "/a/b/chat/completions"])
def test_a_path_behind_an_engine_s_own_prefix_is_known(path: str) -> None:
    assert of(path, {"messages": [{"role": "user", "content": "hi"}]}).form == "chat"


@pytest.mark.parametrize("path", ["/v1/rerank", "/generate", "/v1/systemone"])
def test_what_an_engine_s_own_path_takes_is_unknown_and_counted(path: str) -> None:
    found = of(path, {"query": "a", "documents": ["b"]})
    assert (found.unknown, found.max_tokens, found.choices) == ("prompt", 0, 1)


def test_a_path_that_fills_no_cache_is_none_of_admission_s() -> None:
    assert Prompt.of("/v1/models", {}) is None
    assert Prompt.of("/tokenize", {"content": "x"}) is None
    assert Prompt.of(CHAT, ["no object"]) is None


def test_an_embedding_generates_nothing() -> None:
    found = of("/v1/embeddings", {"input": ["a", "b"], "max_tokens": 5, "n": 4})
    assert (found.max_tokens, found.choices, found.texts) == (0, 1, ("a", "b"))


def test_all_parts_of_an_infill_request_are_one_prompt() -> None:
    found = of("/infill", {"input_prefix": "a" * 100, "input_suffix": "b", "input_extra": [{"text": "c" * 10}]})
    assert len(found.texts) == 1
    assert isinstance(found.texts[0], int)
    assert found.texts[0] >= 111


@pytest.mark.parametrize(
    ("content", "unknown"),
    [
        ("text", ""),
        (None, ""),
        ("", ""),
        ([{"type": "text", "text": "a"}], ""),
        ([{"type": "image_url", "image_url": {"url": "data:"}}], "media"),
        ([{"type": "input_audio", "input_audio": {}}], "media"),
        ([{"type": "text"}], "media"),
        (7, "prompt"),
        ([3], "prompt"),
    ],
)
def test_what_of_a_message_can_be_sized(content: object, unknown: str) -> None:
    assert of(CHAT, {"messages": [{"role": "user", "content": content}]}).unknown == unknown


@pytest.mark.parametrize("messages", [None, [], {}, "hi", [1], [None], [[]]])
def test_messages_of_no_form_are_left_to_the_engine(messages: object) -> None:
    assert of(CHAT, {"messages": messages}).unknown == "prompt"


def test_an_answer_that_goes_on_from_a_stored_one_cannot_be_sized() -> None:
    assert of("/v1/responses", {"input": "hi", "previous_response_id": "r1"}).unknown == "prompt"
    assert of("/v1/responses", {"input": "hi"}).unknown == ""


def shape(body: dict[str, object]) -> object:
    found = of(CHAT, body).contents
    assert found is not None
    return found.shape()


def test_chats_of_one_shape_differ_in_texts_and_sampling_alone() -> None:
    one = {"messages": [{"role": "user", "content": "hello"}], "temperature": 0.1, "seed": 1, "tools": [{"a": 1}]}
    other = {"messages": [{"role": "user", "content": "good bye"}], "seed": 2, "max_tokens": 3, "tools": [{"a": 1}]}
    assert shape(one) == shape(other)
    assert shape({**one, "tools": []}) != shape(one)
    assert shape({**one, "chat_template_kwargs": {"enable_thinking": False}}) != shape(one)
    assert shape({**one, "messages": [{"role": "system", "content": "hello"}]}) != shape(one)


def test_a_tool_s_answer_may_be_written_as_json() -> None:
    text = '{"a": "<b>"}'
    found = of(CHAT, {"messages": [{"role": "tool", "content": text}, {"role": "user", "content": text}]}).contents
    assert found is not None
    assert found.bounds[0] >= len(json.dumps(text).replace("<", "\\u003c").replace(">", "\\u003e"))
    assert found.bounds[1] == len(text)


def test_conversations_with_a_common_beginning_share_its_digests() -> None:
    first = [{"role": "user", "content": "a"}]
    one, two = (of(CHAT, {"messages": [*first, {"role": "assistant", "content": c}]}).contents for c in "bc")
    assert one is not None
    assert two is not None
    assert one.chain[0] == two.chain[0]
    assert one.chain[1] != two.chain[1]
    split = of(CHAT, {"messages": [{"role": "user", "content": [{"type": "text", "text": t} for t in ("a", "b")]}]})
    joined = of(CHAT, {"messages": [{"role": "user", "content": [{"type": "text", "text": t} for t in ("ab", "")]}]})
    assert split.contents is not None
    assert joined.contents is not None
    assert split.contents.chain != joined.contents.chain


@given(st.text())
def test_the_bytes_of_a_text_bound_what_any_normaliser_of_a_language_model_makes_of_it(text: str) -> None:
    bound = most_tokens(text)
    for form in ("NFC", "NFKC"):
        assert len(unicodedata.normalize(form, text).encode()) <= bound
    assert len(text.encode()) <= bound


def test_a_ligature_that_a_normaliser_spells_out_is_counted_as_that() -> None:
    assert most_tokens("\ufdfa") == 33
    assert most_tokens("\ud800") == 3, "half a surrogate pair is three bytes in what a client may send"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
NAMES = "messages prompt input content role system instructions type text tools n max_tokens input_extra"
FIELDS = st.sampled_from(NAMES.split())
BODIES = st.dictionaries(FIELDS, JSON | st.lists(st.dictionaries(FIELDS, JSON, max_size=4), max_size=4), max_size=6)


@given(st.sampled_from(sorted(PATHS)), BODIES)
def test_any_body_is_sized_or_said_to_be_unknown(path: str, body: dict[str, object]) -> None:
    found = of(path, body)
    assert found.choices >= 1
    assert found.max_tokens is None or found.max_tokens >= 0
    assert found.unknown in ("", "media", "prompt")
    assert found.unknown or found.contents is not None or found.texts


def test_lists_in_lists_in_lists_are_left_to_the_engine() -> None:
    deep: list[object] = []
    for _ in range(900):
        deep = [deep]
    for body in ({"prompt": deep}, {"messages": [{"role": "user", "content": deep}]}, {"messages": [{"x": deep}]}):
        for path in ("/v1/completions", CHAT):
            assert of(path, body).unknown in ("prompt", "")


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"messages": []},
        {"max_tokens": None},
        {"n_predict": "many"},
        {"n_predict": -1, "max_completion_tokens": None, "a": {"b": "}"}},
    ],
)
def test_a_longest_answer_is_written_into_a_body_and_nothing_else_of_it_changes(body: dict[str, object]) -> None:
    raw = json.dumps(body).encode() + b" \n"
    limited = json.loads(of(CHAT, body).limited(raw, 77))
    assert of(CHAT, limited).max_tokens == 77
    assert all(limited[name] in (77, "many") for name in ("max_tokens", "n_predict") if name in limited)
    changed = {"max_tokens", "n_predict", "max_completion_tokens"}
    assert {k: v for k, v in limited.items() if k not in changed} == {k: v for k, v in body.items() if k not in changed}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"max_tokens": 4, "n_predict": -1}, {"max_tokens": 4, "n_predict": 77}),
        ({"max_tokens": "many"}, {"max_tokens": "many"}),
        ({"max_tokens": 4.0}, {"max_tokens": 4.0}),
    ],
)
def test_a_longest_answer_takes_the_place_of_none_and_of_nothing_else(body: object, expected: object) -> None:
    assert json.loads(of(CHAT, body).limited(json.dumps(body).encode(), 77)) == expected
