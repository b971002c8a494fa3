"""Reading what an engine sends: any bytes end in a value or a fault, never in another exception."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from archonctl.ledger.as_json import ledger_json
from archonctl.ledger.reader import LedgerReader
from archonctl.probe.answers import (
    judge_generation,
    listed_window,
    model_ids,
    read_generation,
    read_refusal,
    refused,
)
from archonctl.probe.faults import Fault
from archonctl.probe.jsonread import as_int, parse_json, pick
from archonctl.probe.metrics import load_of_json, load_of_metrics, samples
from archonctl.probe.report import read_cache_config, read_props, read_server_info, read_sglang_info, with_slots
from archonctl.probe.sse import SseParser
from archonctl.probe.stream import Seen
from archonctl.redact import Redactor

NAMES = (
    "error choices message content text delta usage prompt_tokens completion_tokens finish_reason data id object detail"
    " reasoning tool_calls timings predicted_n model tokens running waiting total_slots"
)
KEYS = st.sampled_from(NAMES.split()) | st.text(max_size=4)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=20,
)


@settings(deadline=None)
@given(JSON)
def test_no_json_upsets_a_reader(value: object) -> None:
    read_refusal(value)
    generation = read_generation(value)
    if generation is not None:
        judge_generation(generation, 32)
    model_ids(value)
    listed_window(value, "m")
    load_of_json(value)
    read_props(value, "/props")
    with_slots(read_server_info(value, "/server_info"), value)
    read_sglang_info(value, "/get_server_info")
    seen = Seen()
    seen.absorb(value)
    assert seen.tokens >= 0


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_bytes_are_json_or_a_fault(body: bytes) -> None:
    with suppress(Fault):
        parse_json(body)


def test_nesting_without_end_is_a_fault() -> None:
    with pytest.raises(Fault, match="not JSON"):
        parse_json(b"[" * 1_000_000)


@settings(deadline=None)
@given(st.text(max_size=300))
def test_no_metrics_text_upsets_a_reader(text: str) -> None:
    samples(text, frozenset({"a"}))
    load_of_metrics(text)
    read_cache_config(text, "/metrics")


EVENTS = st.lists(
    st.binary(min_size=1, max_size=20).filter(lambda b: b"\n" not in b and b"\r" not in b and b.strip()), max_size=6
)
"""White space alone is no event."""


@settings(deadline=None)
@given(EVENTS, st.sampled_from([b"\n", b"\r\n", b"\r"]), st.data())
def test_events_are_the_same_however_they_are_cut(events: list[bytes], end: bytes, data: st.DataObject) -> None:
    wire = b"".join(b": comment" + end + b"data: " + event + end + end for event in events)
    parser, got, at = SseParser(), [], 0
    while at < len(wire):
        size = data.draw(st.integers(1, 9))
        got += parser.feed(wire[at : at + size])
        at += size
    assert got + parser.end() == events


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_are_events_or_nothing(block: bytes) -> None:
    parser = SseParser()
    parser.feed(block)
    parser.end()


def test_an_event_over_several_lines_and_without_a_last_blank_line() -> None:
    parser = SseParser()
    assert parser.feed(b"event: x\ndata: a\ndata: b\n\ndata: c") == [b"a\nb"]
    assert parser.end() == [b"c"]


def test_old_llama_error_fields_count_as_data() -> None:
    assert SseParser().feed(b'error: {"code": 500}\n\n') == [b'{"code": 500}']


@pytest.mark.parametrize(
    ("status", "error", "code"),
    [
        (400, {"type": "exceed_context_size_error", "message": "x", "n_ctx": 2048}, "window-exceeded"),
        (400, {"message": "This model's maximum context length is 8192 tokens. However, ..."}, "window-exceeded"),
        (400, {"message": "the prompt is too large to ever fit"}, "window-exceeded"),
        (400, {"message": "unknown field 'foo'"}, "request-refused"),
        (422, {"message": "max_tokens must be a number"}, "request-refused"),
        (500, {"message": "Context size has been exceeded."}, "pool-exhausted"),
        (500, {"message": "CUDA error"}, "engine-error"),
        (429, {"message": "queue full"}, "queue-full"),
        (503, {"message": "no slot available"}, "queue-full"),
    ],
)
def test_refusals_are_told_apart(status: int, error: dict[str, object], code: str) -> None:
    fault = refused(status, read_refusal({"error": error}), str(error["message"]), "POST /x")
    assert (fault.code, fault.status) == (code, "fail")


def test_the_window_of_a_refusal_is_told() -> None:
    error = {"error": {"type": "exceed_context_size_error", "message": "m", "n_ctx": 2048, "n_prompt_tokens": 4000}}
    assert refused(400, read_refusal(error), "m", "POST /x").actual == "a window of 2,048 tokens"


def test_an_error_of_null_is_none() -> None:
    assert read_refusal({"error": None, "choices": []}) is None


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (True, None),
        (-1, None),
        (3.0, 3),
        (3.5, None),
        (float("nan"), None),
        ("3", 3),
        ("3.5", None),
        ("", None),
        ("٣", None),
        ("9" * 17, None),
        (10**400, None),
    ],
)
def test_only_whole_numbers_count(value: object, expected: int | None) -> None:
    assert as_int(value) == expected


def test_picking_from_the_wrong_shape_is_none() -> None:
    assert pick([1, {"a": 2}], 1, "a") == 2
    assert pick({"a": 1}, "a", "b") is None
    assert pick([], 0) is None
    assert pick(None, "a") is None


CACHE = 'vllm:cache_config_info{block_size="128",note="a\\"b}",kv_cache_size_tokens="524288",num_gpu_blocks="4096"} 1.0'


def test_vllm_states_its_pool() -> None:
    assert read_cache_config(f"# HELP x\n{CACHE}\n", "/metrics").kv_tokens == 524_288


@pytest.mark.parametrize(
    "text", ["", CACHE + "\n" + CACHE, CACHE.replace("524288", "None"), CACHE.replace("524288", "0")]
)
def test_vllm_pools_that_cannot_be_told_are_unknown(text: str) -> None:
    assert read_cache_config(text, "/metrics").kv_tokens is None


def test_samples_are_summed_over_labels() -> None:
    text = '# TYPE a gauge\na{engine="0"} 1.0\na{engine="1"} 2\nab 7\n'
    assert samples(text, frozenset({"a"})) == 3
    assert samples(text, frozenset({"c"})) is None


@pytest.mark.parametrize("number", ["1e999", "-1e999", "1e300", "-1"])
def test_a_gauge_that_no_engine_can_mean_is_unknown(number: str) -> None:
    assert load_of_metrics(f"vllm:num_requests_running {number}\n") is None


SECRET = "k3y-of+Great/Length"


@settings(deadline=None)
@given(st.text(max_size=40), st.text(max_size=40), st.integers(1, 60))
def test_a_secret_never_survives_an_excerpt(before: str, after: str, limit: int) -> None:
    shown = Redactor((SECRET,)).excerpt(f"{before}{SECRET}{after}", limit)
    assert SECRET not in shown
    assert len(shown) <= max(limit, 1)


@pytest.mark.parametrize(
    "text",
    [
        "Authorization: Bearer abcdef123456",
        '{"api_key": "abcdef123456"}',
        "token=abcdef123456",
        "sk-abcdef123456",
        "hf_abcdef123456",
        "non-default args: {'api_key': ['x', 'abcdef123456'], 'port': 1}",
        "LLAMA_API_KEY=abcdef123456",
        "AWS_SECRET_ACCESS_KEY=abcdef123456",
        "llama-server --api-key abcdef123456 --port 1",
        "--hf-token abcdef123456",
        "https://user:abcdef123456@host/",
        "GET /v1/models?key=abcdef123456&x=1",
        "cookie: abcdef123456",
    ],
)
def test_what_has_the_shape_of_a_secret_is_hidden(text: str) -> None:
    assert "abcdef123456" not in Redactor().excerpt(text)


def test_figures_are_no_secrets() -> None:
    for text in ("max_total_num_tokens=556348, context_len=131072", "EOS token = 128009", "--max-num-tokens 2048"):
        assert Redactor().clean(text) == text


def test_a_ledger_keeps_no_key_of_the_lines_that_it_reads() -> None:
    line = "(APIServer pid=1) INFO 11-30 12:07:10 [api_utils.py:286] non-default args: {'api_key': ['abcdef123456'], "
    reader = LedgerReader("vllm")
    reader.feed(line + "'max_num_seqs': 3}")
    found = reader.result()
    assert found.figures["max_num_seqs"].value.best == 3
    assert "abcdef123456" not in json.dumps(ledger_json(found))


def test_control_characters_do_not_reach_a_terminal() -> None:
    shown = Redactor().excerpt(b"\x1b[2Jgone\x07\xff\x9b31m")
    assert shown.isprintable()


def test_a_completion_with_reasoning_only_is_a_generation() -> None:
    for name in ("reasoning", "reasoning_content"):
        answer = {"choices": [{"message": {"content": None, name: "hm"}, "finish_reason": "length"}]}
        found = read_generation(json.loads(json.dumps(answer)))
        assert found is not None
        assert judge_generation(found, 32) == ""


@settings(deadline=None)
@given(st.integers(1, 9))
def test_a_byte_order_mark_before_a_stream_is_no_part_of_it(cut: int) -> None:
    wire, parser = b"\xef\xbb\xbfdata: {}\n\ndata: [DONE]\n\n", SseParser()
    found = [each for at in range(0, len(wire), cut) for each in parser.feed(wire[at : at + cut])]
    assert found == [b"{}", b"[DONE]"]
