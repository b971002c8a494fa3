"""What stands between an engine and its clients: a sound engine keeps its verdict, and what a proxy hides is no
evidence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from archonctl.probe.run import probe_endpoint
from archonctl.probe.values import Verdict
from support import lying_server as lies
from support.lying_server import Engine, Handler, lying_server
from support.probing import API, ROOMY, boot_ledger, endpoint, leg, probe, told
from support.reverse_proxy import Behaviour, reverse_proxy

BOM = b"\xef\xbb\xbf"
SLOW = {"prefill_s": 0.001, "step_s": 0.01}
"""An engine at whose pace it shows when a stream comes."""
LONG_BYTES = 1100
"""Of a request: more than the one that measures the pace, less than half of the contract, whatever the pace is."""


def through(does: Behaviour, *, path: str = "", **engine: Any) -> Verdict:
    """The verdict on a lying server that its clients reach through a proxy only."""
    with lying_server(Engine(**engine)) as server, reverse_proxy(server.listen, does) as proxy:
        public = f"http://127.0.0.1:{proxy.port}{path}"
        declared = endpoint(server.listen, 2, 400, public_url=public)
        verdict = probe_endpoint(declared, API, boot_ledger(1_000_000, 4, 512), limits=ROOMY)
        assert proxy.seen, "nothing went through the proxy"
        assert all(each.startswith(f"{does.prefix}/v1/") for each in proxy.seen)
        return verdict


def events(change: Callable[[bytes], bytes], kind: str = "") -> tuple[Behaviour, str]:
    """Event streams as the standard allows them to be written, though few do."""
    return Behaviour(rewrite=change, stream_kind=kind), ""


def noisy(piece: bytes) -> bytes:
    """Comments, other fields, an event without data and one of white space before each event."""
    return b": ping\n\nevent: message\nid: 7\nretry: 100\n\ndata:\n\ndata: \ndata:\n\nunknown\n" + piece


def in_lines(piece: bytes) -> bytes:
    """The JSON of each event over several data lines."""
    return piece.replace(b', "choices"', b'\ndata: , "choices"')


TRANSPARENT: dict[str, tuple[Behaviour, str]] = {
    "as it comes, and closed at the end": (Behaviour(), ""),
    "under a prefix": (Behaviour(prefix="/llm/a"), "/llm/a/v1/"),
    "under a prefix that is declared without v1": (Behaviour(prefix="/llm"), "/llm"),
    "gzip": (Behaviour(coding="gzip"), ""),
    "deflate": (Behaviour(coding="deflate"), ""),
    "deflate without its head": (Behaviour(coding="raw deflate"), ""),
    "a few bytes at a time": (Behaviour(piece=7), ""),
    "JSON and events under another type": (Behaviour(kind="text/plain; charset=utf-8"), ""),
    "no kind of text at all": (Behaviour(kind="application/octet-stream"), ""),
    "headers twice": (Behaviour(head=(("Content-Type", "text/html"), ("Connection", "close"), ("Vary", "*"))), ""),
    "huge headers": (Behaviour(head=tuple((f"X-{i}", "y" * 4000) for i in range(16))), ""),
    "cookies": (Behaviour(head=(("Set-Cookie", "route=replica-2; Path=/"),) * 40), ""),
    "CR LF": events(lambda piece: piece.replace(b"\n", b"\r\n")),
    "CR alone": events(lambda piece: piece.replace(b"\n", b"\r")),
    "no space after the colon": events(lambda piece: piece.replace(b"data: ", b"data:")),
    "comments and other fields": events(noisy),
    "JSON over several lines": events(in_lines),
    "a type in odd case": events(bytes, "Text/Event-Stream ;Charset=UTF-8"),
    "no type of a stream": events(bytes, "text/plain"),
    "the type of JSON": events(bytes, "application/json"),
    "interim answers": (
        Behaviour(before=b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>; rel=preload\r\n\r\n"),
        "",
    ),
    "refused for a moment": (Behaviour(refuse=[(429, "1"), (503, "")]), ""),
    "long requests refused for a moment": (Behaviour(refuse=[(503, "0"), (429, "")], refuse_above=LONG_BYTES), ""),
}


@pytest.mark.parametrize("name", TRANSPARENT)
def test_a_sound_engine_behind_a_proxy_holds(name: str) -> None:
    does, path = TRANSPARENT[name]
    verdict = through(does, path=path)
    assert verdict.word == "holds", told(verdict)


@pytest.mark.parametrize("continuous", [False, True])
def test_counts_in_words_and_usage_of_null_are_read(continuous: bool) -> None:
    with lying_server(Engine(usage_as_text=True, continuous=continuous)) as server:
        verdict = probe(server)
    assert verdict.word == "holds", told(verdict)


@pytest.mark.parametrize("chat", [False, True])
def test_counts_that_grow_with_the_prompt_are_not_believed(chat: bool) -> None:
    """What a gateway adds to each count would make prompts shorter than they are said to be."""
    with lying_server(Engine(overcount=0.2, window=2000, no_completions=chat)) as server:
        verdict = probe(server, length=1000)
    assert (verdict.word, leg(verdict, "capacity").code) == ("no evidence", "prompt-not-sizable"), told(verdict)


def test_a_cookie_is_not_sent_back() -> None:
    """It would tie all sequences to one of several replicas."""
    with lying_server(Engine()) as server:
        server.engine.override["/health"] = lies.answers(200, b"{}", Set_Cookie="route=2; Path=/")
        verdict = probe(server)
        assert verdict.word == "holds", told(verdict)
        assert not any("cookie" in headers for headers in server.headers)


@pytest.mark.usefixtures("one_flight")
@pytest.mark.parametrize("piece", [-1, 65_536, 4096])
def test_a_stream_that_a_proxy_keeps_back_proves_nothing(piece: int) -> None:
    verdict = through(Behaviour(piece=piece), **SLOW)
    found = leg(verdict, "capacity")
    assert verdict.word != "broken", told(verdict)
    assert piece == 4096 or (verdict.word, found.code) == ("no evidence", "hold-unproven"), told(verdict)


@pytest.mark.usefixtures("one_flight")
@pytest.mark.parametrize("piece", [-1, 2048])
def test_an_engine_that_serialises_behind_a_proxy_that_buffers_is_never_said_to_hold(piece: int) -> None:
    verdict = through(Behaviour(piece=piece), slots=1, override={"/props": lies.answers(404, b"{}")}, **SLOW)
    assert verdict.word != "holds", told(verdict)


@pytest.mark.parametrize("coding", ["br", "zstd", "gzip, br"])
def test_what_cannot_be_unpacked_here_is_no_word_on_the_engine(coding: str) -> None:
    verdict = through(Behaviour(coding=coding))
    assert verdict.word == "no evidence", told(verdict)
    assert leg(verdict, "models").code == "answer-compressed"


def test_a_body_that_is_not_packed_as_it_says_is_broken() -> None:
    with lying_server(Engine(override={"/v1/models": lies.answers(200, b"{}", Content_Encoding="gzip")})) as server:
        verdict = probe(server)
    assert (verdict.word, leg(verdict, "models").code) == ("broken", "answer-compressed"), told(verdict)


REFUSED: dict[str, tuple[Behaviour, str, str, str]] = {
    "long ones for ever": (
        Behaviour(refuse=[(429, "0")] * 99, refuse_above=LONG_BYTES), "broken", "capacity", "queue-full",
    ),
    "long ones until much later": (
        Behaviour(refuse=[(429, "3600")] * 99, refuse_above=LONG_BYTES), "no evidence", "capacity", "engine-busy",
    ),
    "until a date that is far away": (
        Behaviour(refuse=[(503, "Fri, 31 Dec 2100 23:59:59 GMT")] * 99, refuse_above=LONG_BYTES),
        "no evidence", "capacity", "engine-busy",
    ),
    "small ones, too": (Behaviour(refuse=[(429, "0")] * 99), "no evidence", "generation", "engine-busy"),
    "a worker that is gone": (Behaviour(refuse=[(503, "0")] * 99), "broken", "generation", "generation-failed"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_that_stays_is_judged_by_whom_it_meets(name: str) -> None:
    does, word, where, code = REFUSED[name]
    verdict = through(does)
    assert (verdict.word, leg(verdict, where).code) == (word, code), told(verdict)


@pytest.mark.parametrize("status", [301, 307, 308])
@pytest.mark.parametrize("path", ["/health", "/v1/models", "/v1/chat/completions", "/v1/completions", "/tokenize"])
def test_the_key_does_not_follow_a_redirect(tmp_path: Path, path: str, status: int) -> None:
    key = tmp_path / "key"
    key.write_text("s3cret-of-the-engine")
    with lying_server(Engine()) as thief, lying_server(Engine(api_key="s3cret-of-the-engine")) as server:
        location = f"http://localhost:{thief.port}{path}"
        server.engine.override[path] = lies.answers(status, b"", Location=location)
        verdict = probe(server, key_file=str(key))
    assert verdict.word != "holds", told(verdict)
    assert thief.requests == []


def health(status: int, body: bytes = b"", kind: str = "text/plain") -> Callable[[Handler], None]:
    return lies.answers(status, body, kind)


@pytest.mark.parametrize(
    "answer",
    [health(204), health(200), health(200, b"OK\n"), health(200, b"<html>fine</html>", "text/html"),
     health(200, BOM + b'{"status": "ok"}', "application/json"), health(202, b"", "application/json")],
)  # fmt: skip
def test_any_success_is_health(answer: Callable[[Handler], None]) -> None:
    with lying_server(Engine(override={"/health": answer})) as server:
        verdict = probe(server, legs="admission")
    assert verdict.word == "holds", told(verdict)


@pytest.mark.parametrize(
    ("body", "kind", "word"),
    [
        (BOM + b'{"data": [{"id": "tiny-model"}]}', "application/json", "holds"),
        (b'{"data": [{"id": "tiny-model"}]}\r\n\r\n', "Application/JSON ; charset=UTF-8", "holds"),
        (b'{"data": [{"id": "tiny-model"}]}', "application/vnd.api+json", "holds"),
        (b'{"data": [{"id": "tiny-model"}]} trailing', "application/json", "broken"),
        (b'{"data": [{"id": "tiny-model"}]}{"data": []}', "text/plain", "broken"),
        (b'"tiny-model"', "text/plain", "broken"),
    ],
)
def test_a_list_of_models_is_read_as_clients_read_it(body: bytes, kind: str, word: str) -> None:
    with lying_server(Engine(override={"/v1/models": lies.answers(200, body, kind)})) as server:
        verdict = probe(server, legs="ledger")
    assert verdict.word == word, told(verdict)


def test_an_engine_that_loads_again_is_waited_for_or_said_to_load() -> None:
    loading = {"error": {"message": "Loading model", "type": "unavailable_error", "code": 503}}
    with lying_server(Engine()) as server:
        chat, left = "/v1/chat/completions", [1]

        def loads(handler: Handler) -> None:
            if left:
                left.pop()
            else:
                del server.engine.override[chat]
            handler.json(503, loading)

        server.engine.override[chat] = loads
        verdict = probe(server, legs="admission")
        assert verdict.word == "holds", told(verdict)
        server.engine.override[chat] = lies.answers_json(loading, 503)
        verdict = probe(server, legs="admission")
    assert (verdict.word, leg(verdict, "generation").code) == ("no evidence", "engine-loading"), told(verdict)
