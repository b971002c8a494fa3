"""Every way in which a server can be unsound, or look so: the verdict, the leg and the code; and back in time."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from archonctl.probe import watch
from archonctl.probe.values import Extras, Verdict
from support import lying_server as lies
from support.lying_server import MODEL, Engine, Handler, lying_server
from support.probing import API, ROOMY, SHORT, boot_ledger, leg, limits_for, probe, told


def probed(engine: Engine, **options: Any) -> Verdict:
    with lying_server(engine) as server:
        return probe(server, **options)


def on(path: str, lie: Callable[[Handler], None], **engine: Any) -> Engine:
    return Engine(override={path: lie}, **engine)


def completion(**changes: Any) -> dict[str, Any]:
    """A sound chat answer with some of it changed."""
    value: dict[str, Any] = {
        "model": MODEL,
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi."}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 9, "completion_tokens": 3},
    }
    return value | changes


def chat_says(**message: Any) -> Callable[[Handler], None]:
    finish = message.pop("finish_reason", "length")
    tokens = message.pop("completion_tokens", 32)
    return lies.answers_json(
        completion(
            choices=[{"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}],
            usage={"prompt_tokens": 9, "completion_tokens": tokens},
        )
    )


CHAT = "/v1/chat/completions"
NO_REPORT = {"/props": lies.answers(404, b"{}")}
NO_SLOTS = lies.answers(501, b"{}")
COMPRESSED = lies.answers(200, b"x", Content_Encoding="gzip")
HTML = lies.answers(200, b"<html>", "text/html")
LOADING = lies.answers_json({"error": {"message": "Loading model"}}, 503)


def chat(lie: Callable[[Handler], None], code: str) -> tuple[Engine, str, str]:
    """A lie told in a chat, and the code it earns."""
    return on(CHAT, lie), "generation", code


def chat_json(code: str, **changes: Any) -> tuple[Engine, str, str]:
    """A completion with some of it changed, and the code it earns."""
    return chat(lies.answers_json(completion(**changes)), code)


SOUND = {
    "plain": Engine(),
    "reasoning text and empty content": Engine(reasoning=True),
    "chat only": Engine(no_completions=True),
    "chat only and reasoning": Engine(no_completions=True, reasoning=True),
    "refuses optional fields by name": Engine(refuse_fields=("cache_prompt", "ignore_eos", "continuous_usage_stats")),
    "counts in every event": Engine(continuous=True),
    "chat that hides its text but counts": Engine(no_completions=True, hide_text=True, continuous=True),
    "larger window than promised": Engine(window=2000),
    "slow prefill": Engine(prefill_s=0.002),
    "text hidden, tokens counted": on(CHAT, chat_says(content="", completion_tokens=32)),
    "reasoning under vLLM's name": on(CHAT, chat_says(content=None, reasoning="thinking")),
    "reasoning, finish_reason stop": on(CHAT, chat_says(content="", reasoning_content="hm", finish_reason="stop")),
    "chat refused for want of a template": on(CHAT, lies.answers_json({"error": {"message": "no template"}}, 400)),
    "answers under an alias": Engine(
        override={
            "/v1/models": lies.answers_json({"data": [{"id": MODEL, "root": "a"}, {"id": "alias", "root": "a"}]}),
            CHAT: lies.answers_json(completion(model="alias")),
        }
    ),
    "health without a body": on("/health", lies.answers(200, b"", "text/plain")),
    "no report": on("/props", lies.answers(404, b"{}")),
    "garbage where the report should be": on("/props", HTML),
    "no slots path": on("/slots", lies.answers(501, b"{}")),
    "error null in a completion": on(CHAT, lies.answers_json(completion(error=None))),
}


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_engine_is_never_called_broken(name: str) -> None:
    verdict = probed(SOUND[name])
    assert verdict.word == "holds", told(verdict)
    assert verdict.reasons == ()


BROKEN: dict[str, tuple[Engine, str, str]] = {
    "slow-loris health": (on("/health", lies.trickle), "health", "request-timeout"),
    "slow-loris headers": (on("/health", lies.trickle_head), "health", "request-timeout"),
    "endless health": (on("/health", lies.endless), "health", "body-too-large"),
    "silent health": (on("/health", lies.silent), "health", "request-timeout"),
    "health 500": (on("/health", lies.answers(500, b"{}")), "health", "answer-wrong-status"),
    "health redirected": (
        on("/health", lies.answers(302, b"", Location="http://169.254.169.254/")),
        "health",
        "redirected",
    ),
    "slow-loris models": (on("/v1/models", lies.trickle), "models", "request-timeout"),
    "endless models": (on("/v1/models", lies.endless), "models", "body-too-large"),
    "models as HTML": (on("/v1/models", HTML), "models", "answer-wrong-type"),
    "models not JSON": (on("/v1/models", lies.answers(200, b'{"data": [')), "models", "answer-not-json"),
    "models deeply nested": (on("/v1/models", lies.answers(200, b"[" * 200_000)), "models", "answer-not-json"),
    "models not UTF-8": (on("/v1/models", lies.answers(200, b'{"data": "\xff\xfe"}')), "models", "answer-not-utf8"),
    "models empty list": (on("/v1/models", lies.answers_json({"data": []})), "models", "models-invalid"),
    "models of numbers": (on("/v1/models", lies.answers_json({"data": [{"id": 3}]})), "models", "models-invalid"),
    "models null": (on("/v1/models", lies.answers_json(None)), "models", "models-invalid"),
    "models error inside 200": (
        on("/v1/models", lies.answers_json({"error": {"message": "worker died"}})),
        "models",
        "error-in-200",
    ),
    "models compressed": (
        on("/v1/models", lies.answers(200, b"x", Content_Encoding="gzip")),
        "models",
        "answer-compressed",
    ),
    "models redirected": (on("/v1/models", lies.answers(307, b"", Location="/login")), "models", "redirected"),
    "models dropped": (on("/v1/models", lies.closed), "models", "connection-dropped"),
    "another model": (Engine(model="other-model"), "model-id", "model-id-mismatch"),
    "answers from another model": (
        on(CHAT, lies.answers_json(completion(model="fallback"))),
        "generation",
        "model-id-mismatch",
    ),
    "dead worker behind a live health: 500": (
        on(CHAT, lies.answers_json({"error": {"message": "EngineCore died", "code": 500}}, 500)),
        "generation",
        "generation-failed",
    ),
    "dead worker behind a live health: silence": (on(CHAT, lies.silent), "generation", "request-timeout"),
    "dead worker behind a live health: drop": (on(CHAT, lies.closed), "generation", "connection-dropped"),
    "slow-loris generation": (on(CHAT, lies.trickle), "generation", "request-timeout"),
    "endless generation": (on(CHAT, lies.endless), "generation", "body-too-large"),
    "generation: 200 with an error": (
        on(CHAT, lies.answers_json({"error": {"message": "CUDA error", "code": 500}})),
        "generation",
        "error-in-200",
    ),
    "generation: 200 with an error string": (
        on(CHAT, lies.answers_json({"error": "boom"})),
        "generation",
        "error-in-200",
    ),
    "generation: 200 with an error object": (
        on(CHAT, lies.answers_json({"object": "error", "message": "boom", "code": 50001})),
        "generation",
        "error-in-200",
    ),
    "generation: empty object": (on(CHAT, lies.answers_json({})), "generation", "generation-invalid"),
    "generation: no choices": chat_json("generation-invalid", choices=[]),
    "generation: choices of null": (
        on(CHAT, lies.answers_json(completion(choices=[None]))),
        "generation",
        "generation-invalid",
    ),
    "generation: given up": (
        on(CHAT, chat_says(content="Hi", finish_reason="abort")),
        "generation",
        "answer-aborted",
    ),
    "a full-height answer given up": (
        Engine(finish="abort", lie_above=150),
        "capacity",
        "answer-aborted",
    ),
    "generation: nothing at all": (
        on(CHAT, chat_says(content="", completion_tokens=0)),
        "generation",
        "generation-empty",
    ),
    "generation: text but zero tokens": (
        on(CHAT, chat_says(content="Hi", completion_tokens=0)),
        "generation",
        "generation-empty",
    ),
    "generation: empty, stop": (
        on(CHAT, chat_says(content="", finish_reason="stop", completion_tokens=1)),
        "generation",
        "generation-empty",
    ),
    "generation: empty, uncounted": (
        on(CHAT, chat_says(content="", completion_tokens=None)),
        "generation",
        "generation-empty",
    ),
    "chat that serialises, counted": (
        Engine(slots=1, prefill_s=0.002, no_completions=True, continuous=True, override=NO_REPORT),
        "capacity",
        "not-held-at-once",
    ),
    "chat that serialises, uncounted, but tells its load": (
        Engine(slots=1, prefill_s=0.002, no_completions=True, override=NO_REPORT),
        "capacity",
        "not-held-at-once",
    ),
    "answers from another listed model": (
        Engine(
            override={
                "/v1/models": lies.answers_json({"data": [{"id": MODEL, "root": "a"}, {"id": "small", "root": "b"}]}),
                CHAT: lies.answers_json(completion(model="small")),
            }
        ),
        "generation",
        "model-id-mismatch",
    ),
    "window too small": (Engine(window=128), "engine-report", "window-short"),
    "window too small, report lies": (Engine(window=128, stated_window=512), "capacity", "window-exceeded"),
    "pool too small": (Engine(pool=300), "capacity", "pool-exhausted"),
    "serialises everything": (
        Engine(slots=1, override={"/props": lies.answers(404, b"{}")}),
        "capacity",
        "not-held-at-once",
    ),
    # below half of the contract, which is the shortest prompt that the probe sends, however slow the machine
    "prompt cut in silence": (Engine(window=150, stated_window=512, truncate=True), "capacity", "prompt-truncated"),
    "prompt undercounted": (Engine(undercount=30), "capacity", "prompt-truncated"),
    "over the window cut in silence": (Engine(truncate=True), "refusal", "over-window-accepted"),
    "half a stream": (Engine(cut_after=20, lie_above=150), "capacity", "connection-dropped"),
    "error inside a stream": (Engine(error_after=20, lie_above=150), "capacity", "pool-exhausted"),
    "another model answers what is long": (
        Engine(falls_back_to="small-model", lie_above=150),
        "capacity",
        "model-id-mismatch",
    ),
    "scheduler never admits full height": (Engine(never_above=150), "capacity", "never-admitted"),
    "others stand still": (Engine(stall_others=True, step_s=0.01, lie_above=150), "capacity", "sequence-stalled"),
    "stream as HTML": (
        on("/v1/completions", HTML),
        "capacity",
        "answer-wrong-type",
    ),
    "stream of garbage": (
        on("/v1/completions", lies.answers(200, b"data: {nope\n\n", "text/event-stream")),
        "capacity",
        "answer-not-json",
    ),
    "stream not UTF-8": (
        on("/v1/completions", lies.answers(200, b'data: {"a": "\xff"}\n\n', "text/event-stream")),
        "capacity",
        "answer-not-utf8",
    ),
    "stream that just ends": (
        on("/v1/completions", lies.answers(200, b'data: {"choices": [{"text": "a"}]}\n\n', "text/event-stream")),
        "capacity",
        "stream-cut",
    ),
    "stream without an event's end": (
        on("/v1/completions", lies.answers(200, b"data: " + b"x" * 2_000_000, "text/event-stream")),
        "capacity",
        "body-too-large",
    ),
    "stream of comments for ever": (
        on("/v1/completions", lambda h: (h.start(200, "text/event-stream"), lies.trickle_on(h, b": ping\n\n"))[0]),
        "capacity",
        "never-admitted",
    ),
}


@pytest.mark.usefixtures("quick_stall")
@pytest.mark.parametrize("name", BROKEN)
def test_an_unsound_engine_is_called_broken(name: str) -> None:
    engine, where, code = BROKEN[name]
    verdict = probed(engine, limits=limits_for(code))
    assert verdict.word == "broken", told(verdict)
    found = leg(verdict, where)
    assert (found.status, found.code) == ("fail", code), told(verdict)
    assert any(found.message in reason for reason in verdict.reasons)


UNSEEN: dict[str, tuple[Engine, str, str]] = {
    "loading": (
        on("/health", lies.answers_json({"error": {"message": "Loading model"}}, 503)),
        "health",
        "engine-loading",
    ),
    "stopping": (on("/health", lies.answers_json({"status": "stopping"})), "health", "engine-loading"),
    "401 on the model list": (Engine(api_key="s3cret-key"), "auth", "auth-required"),
    "403 on generation": (on(CHAT, lies.answers_json({"error": "no"}, 403)), "generation", "auth-required"),
    "no tokenizer": (on("/tokenize", lies.answers(404, b"{}")), "capacity", "tokenize-unusable"),
    "tokenizer counts nothing": (on("/tokenize", lies.answers_json({"tokens": []})), "capacity", "tokenize-unusable"),
    "tokenizer contradicts itself": (
        on("/tokenize", lies.answers_json({"tokens": [1, 2], "count": 3})),
        "capacity",
        "tokenize-unusable",
    ),
    "tokenizer always says 5": (on("/tokenize", lies.answers_json({"count": 5})), "capacity", "prompt-not-sizable"),
    "prompt tokens not reported": (Engine(usage=False), "capacity", "prompt-tokens-unreported"),
    "prompt tokens told as 0": (Engine(undercount=10**6), "capacity", "prompt-tokens-unreported"),
    "no streaming": (Engine(ignore_stream=True), "capacity", "stream-not-supported"),
    "a sound engine that shows its text late": (
        Engine(hold_back=1.0, lie_above=150),
        "capacity",
        "hold-unproven",
    ),
    "a sound engine that shows its text late and tells no load": (
        Engine(hold_back=1.0, lie_above=150, override={"/slots": NO_SLOTS}),
        "capacity",
        "hold-unproven",
    ),
    "answers end early": (Engine(eos_after=3), "capacity", "hold-unproven"),
    "answers in one write": (Engine(burst=True), "capacity", "hold-unproven"),
    "chat that serialises, uncounted, and says nothing of its load": (
        Engine(slots=1, prefill_s=0.002, no_completions=True, override=NO_REPORT | {"/slots": NO_SLOTS}),
        "capacity",
        "hold-unproven",
    ),
    "chat whose others stand still, uncounted": (
        Engine(stall_others=True, step_s=0.01, lie_above=150, no_completions=True),
        "capacity",
        "hold-unproven",
    ),
    "others use it": (
        on("/slots", lies.answers_json([{"id": i, "is_processing": i == 0} for i in range(4)])),
        "capacity",
        "engine-busy",
    ),
    "over the window: a proxy's page": (
        Engine(override={"/v1/completions": lies.proxy_limit(450)}),
        "refusal",
        "over-window-unclear",
    ),
}


@pytest.mark.usefixtures("one_flight", "quick_stall")
@pytest.mark.parametrize("name", UNSEEN)
def test_what_was_not_seen_is_called_no_evidence(name: str) -> None:
    engine, where, code = UNSEEN[name]
    verdict = probed(engine, limits=limits_for(code))
    assert verdict.word == "no evidence", told(verdict)
    found = leg(verdict, where)
    assert (found.status, found.code) == ("no evidence", code), told(verdict)
    assert verdict.reasons


def test_fewer_slots_than_sequences_is_seen_although_everything_is_answered() -> None:
    verdict = probed(Engine(slots=2, prefill_s=0.002, override=NO_REPORT), seqs=3)
    found = leg(verdict, "capacity")
    # The engine's own count decides: this client may have looked away for a moment.
    assert (verdict.word, found.code) == ("broken", "not-held-at-once"), told(verdict)
    assert (found.expected, found.actual) == ("3 at once", "2 at once")


def test_a_pool_too_small_while_others_take_room_says_nothing_of_the_engine() -> None:
    verdict = probed(Engine(pool=300, others=1, lie_above=150))
    found = leg(verdict, "capacity")
    assert (verdict.word, found.status, found.code) == ("no evidence", "no evidence", "engine-busy"), told(verdict)
    assert "requests of others" in found.message


def test_what_is_held_beside_others_is_held() -> None:
    verdict = probed(Engine(others=1, lie_above=150))
    assert verdict.word == "holds", told(verdict)


def test_a_probe_that_waits_for_an_idle_engine_gives_way_when_others_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "LINGERS_S", 0.1)
    with lying_server(Engine(others=1, lie_above=150, step_s=0.01)) as server:
        verdict = probe(server, extras=Extras(when_idle=True), limits=replace(ROOMY, settled_s=0.2))
        assert server.running == 0 or lies_wait(server)
    found = leg(verdict, "capacity")
    assert (verdict.word, found.code) == ("no evidence", "engine-busy"), told(verdict)
    assert "gave way" in found.message
    assert leg(verdict, "refusal").status == "skip"


def lies_wait(server: Any) -> bool:
    """True once the server runs nothing any more: the connections were closed."""
    end = time.monotonic() + 10
    while server.running and time.monotonic() < end:
        time.sleep(0.02)
    return not server.running


def test_no_boot_log_is_no_evidence_even_if_every_request_was_held() -> None:
    verdict = probed(Engine(), ledger=None)
    assert leg(verdict, "capacity").status == "pass", told(verdict)
    assert verdict.word == "no evidence"
    assert leg(verdict, "ledger").code == "ledger-missing"


def test_a_boot_log_of_another_run_is_no_evidence() -> None:
    verdict = probed(Engine(window=2000), ledger=boot_ledger(1_000_000, 4, 512))
    assert verdict.word == "no evidence", told(verdict)
    assert leg(verdict, "engine-report").code == "report-disagrees"


def test_an_engine_that_dies_of_the_request_is_seen() -> None:
    with lying_server(Engine()) as server:
        calls = {"n": 0}

        def health(handler: Handler) -> None:
            calls["n"] += 1
            handler.json(200 if calls["n"] == 1 else 500, {"status": "ok"})

        server.engine.override["/health"] = health
        verdict = probe(server)
    assert (verdict.word, leg(verdict, "alive").code) == ("broken", "engine-died"), told(verdict)


def test_nothing_listens() -> None:
    with lying_server() as server:
        pass
    verdict = probe(server)
    assert (verdict.word, leg(verdict, "transport").code) == ("broken", "connect-refused"), told(verdict)
    assert {each.status for each in verdict.legs[2:]} == {"skip"}


def test_a_port_that_speaks_something_else() -> None:
    import socket
    import threading

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()

        def greet() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")
                connection.recv(1024)

        thread = threading.Thread(target=greet, daemon=True)
        thread.start()
        with lying_server() as server:
            server.port = listener.getsockname()[1]
            verdict = probe(server)
        thread.join(5)
    assert (verdict.word, leg(verdict, "transport").code) == ("broken", "answer-not-http"), told(verdict)


def test_the_key_is_sent_and_never_shown(tmp_path: Path) -> None:
    key = "Sup3r+Secret/Key-of-archon"
    (tmp_path / "key").write_text(key + "\n")
    with lying_server(Engine(api_key=key)) as server:
        verdict = probe(server, key_file=str(tmp_path / "key"))
        assert verdict.word == "holds", told(verdict)
        server.engine.api_key = "another"
        refused = probe(server, key_file=str(tmp_path / "key"))
    assert (refused.word, leg(refused, "auth").code) == ("no evidence", "auth-refused"), told(refused)
    for each in (*verdict.legs, *refused.legs):
        assert key not in json.dumps([each.message, each.evidence, each.actual, each.expected])


def test_all_streams_are_sent_at_once_and_begin_differently() -> None:
    with lying_server(Engine()) as server:
        verdict = probe(server, seqs=4)
    assert verdict.word == "holds", told(verdict)
    assert server.most_running == 4
    prompts = [body["prompt"] for _, path, body in server.requests if path == "/v1/completions" and body["stream"]]
    full = [prompt for prompt in prompts if len(prompt.split()) > 150]
    assert len({prompt.split()[0] for prompt in full}) == len(full) == 4


def test_admission_asks_for_one_token_and_claims_no_more() -> None:
    with lying_server(Engine(slots=2)) as server:
        verdict = probe(server, legs="admission")
    assert verdict.word == "holds", told(verdict)
    assert "not held at once" in leg(verdict, "capacity").message
    assert verdict.facts["depth"] == "admission"


def test_the_ledger_depth_sends_no_full_height_request() -> None:
    with lying_server(Engine()) as server:
        verdict = probe(server, legs="ledger")
    assert verdict.word == "holds", told(verdict)
    assert [path for _, path, _ in server.requests] == ["/health", "/v1/models", "/props", "/slots", CHAT]


def test_a_deadline_too_short_to_tell_is_no_evidence() -> None:
    verdict = probed(Engine(prefill_s=0.01), deadline=0.6, limits=SHORT)
    assert (verdict.word, leg(verdict, "capacity").code) == ("no evidence", "deadline-reached"), told(verdict)


def test_a_deadline_that_is_long_enough_tells_a_hang() -> None:
    verdict = probed(Engine(never_above=150, prefill_s=0), deadline=5.0, limits=SHORT)
    assert (verdict.word, leg(verdict, "capacity").code) == ("broken", "never-admitted"), told(verdict)


def test_expensive_legs_are_left_out_once_broken_if_asked() -> None:
    verdict = probed(Engine(), ledger=boot_ledger(799, 4, 512), stop_at_failure=True)
    assert verdict.word == "broken"
    assert leg(verdict, "capacity").status == leg(verdict, "refusal").status == "skip"


def test_progress_is_told_and_ends_at_the_total() -> None:
    events: list[Any] = []
    verdict = probed(Engine(), on_progress=events.append, on_leg=events.append)
    assert verdict.word == "holds"
    capacity = [event for event in events if getattr(event, "leg", "") == "capacity"]
    assert capacity[-1].done_tokens == capacity[-1].total_tokens == 800
    assert [event.id for event in events if hasattr(event, "id")] == [each.id for each in verdict.legs]


def test_ipv6_and_any_address_are_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    for host, listen in (("::1", "[::]"), ("127.0.0.1", "0.0.0.0")):
        with lying_server(Engine(), host) as server:
            declared = replace_listen(server, f"{listen}:{server.port}")
        assert declared.word == "holds", told(declared)


def replace_listen(server: Any, listen: str) -> Verdict:
    from archonctl.probe.run import probe_endpoint
    from support.probing import endpoint

    return probe_endpoint(endpoint(listen, 2, 256), API, boot_ledger(512, 4, 512), legs="ledger", limits=ROOMY)


def test_a_metric_that_counts_preemptions_breaks_the_contract() -> None:
    count = {"n": 0}

    def metrics(handler: Handler) -> None:
        count["n"] += 1
        handler.whole(200, f'vllm:num_preemptions_total{{engine="0"}} {count["n"]}.0\n'.encode(), "text/plain")

    verdict = probed(Engine(override={"/metrics": metrics}), api=replace(API, metrics="/metrics"))
    assert (verdict.word, leg(verdict, "capacity").code) == ("broken", "preempted"), told(verdict)
