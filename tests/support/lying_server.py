"""An HTTP server that can be a sound engine, or lie in any way that a probe must see through.

A sound one counts a token a word plus one BOS, prefills and answers at a set speed, holds as many sequences as it
has slots and tokens in its pool, and refuses what does not fit. Each lie changes one of these, or replaces the answer
of one path altogether (``override``). Threads and port 0; nothing of it outlives ``close()``.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ssl import SSLContext
from typing import Any

MODEL = "tiny-model"
_VLLM_GAUGES = ("num_requests_running", "num_requests_waiting")


class Gone(Exception):
    """The server is being closed, or the client has left."""


@dataclass
class Engine:
    """What the server claims to be, and what it really is. Seconds a token; tokens; sequences."""

    model: str = MODEL
    window: int = 512
    slots: int = 4
    pool: int = 1_000_000
    prefill_s: float = 0.0002
    step_s: float = 0.002
    stated_window: int | None = None
    reasoning: bool = False
    """The answer is in reasoning_content and content stays empty."""
    hide_text: bool = False
    eos_after: int | None = None
    """End every answer after so many tokens with finish_reason "stop"."""
    truncate: bool = False
    """Cut what does not fit instead of refusing it."""
    undercount: int = 0
    """usage.prompt_tokens is lower than the truth by this."""
    overcount: float = 0.0
    """usage.prompt_tokens is higher than the truth by this share, as where a gateway bills it so."""
    usage_as_text: bool = False
    """Counts are strings, and usage is null where there is nothing to count yet."""
    usage: bool = True
    continuous: bool = False
    """Count in every event of a stream."""
    ignore_stream: bool = False
    refuse_fields: tuple[str, ...] = ()
    """Optional request fields that are refused by name with 400."""
    no_completions: bool = False
    burst: bool = False
    """Send a whole answer in one write."""
    cut_after: int | None = None
    """Close the connection after so many tokens of an answer to a prompt over ``lie_above``."""
    error_after: int | None = None
    never_above: int | None = None
    """Accept a prompt over so many tokens and never answer it."""
    stall_others: bool = False
    """Only the sequence that came first advances; the others wait, prefilled, until it has ended."""
    hold_back: float = 0.0
    """Sequences but the first keep back this share of their events, until all is generated and a moment more."""
    others: int = 0
    """Requests of others that run while a prompt over ``lie_above`` does, by /slots. A pool that is too small beside
    them runs out once somebody has seen them."""
    falls_back_to: str = ""
    """The model that answers a prompt over ``lie_above``, where it is another one."""
    finish: str = "length"
    """How an answer to a prompt over ``lie_above`` ends."""
    interferes_s: float = 0.0
    """A step takes so much longer while another prompt is read."""
    cache: bool = False
    """A prompt that was read before is not read again, and usage says how much of it was cached."""
    lingers_s: float = 0.0
    """A request whose client has left keeps its slot for so much longer."""
    gauges: str = ""
    """/metrics has gauges: "llamacpp" as they are, "vllm" as of the last step (an abort is none)."""
    lie_above: int = 0
    api_key: str = ""
    override: dict[str, Callable[[Handler], None]] = field(default_factory=dict)


class LyingServer:
    """The running server. ``requests`` holds (method, path, body) in the order of arrival."""

    def __init__(self, engine: Engine, host: str = "127.0.0.1", tls: SSLContext | None = None) -> None:
        self.engine = engine
        self.requests: list[tuple[str, str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.stopping = threading.Event()
        self.others_told = False
        self.others_seen = threading.Event()
        self.lock = threading.Condition()
        self.running = 0
        self.waiting = 0
        self.gauge = (0, 0)
        self.held = 0
        self.most_running = 0
        self.leader: object | None = None
        self.prefilling = 0
        self.known: set[str] = set()
        outer = self

        class Bound(Handler):
            server_ = outer

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128
            address_family = ThreadingHTTPServer.address_family if ":" not in host else __import__("socket").AF_INET6

            def handle_error(self, request: Any, client_address: Any) -> None:
                pass

        self._server = Server((host, 0), Bound)
        self.port = self._server.server_address[1]
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    @property
    def listen(self) -> str:
        """As service.listen wants it."""
        return f"127.0.0.1:{self.port}"

    def close(self) -> None:
        """Stop; every handler that waits gives up."""
        self.stopping.set()
        with self.lock:
            self.lock.notify_all()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(60)

    def stepped(self) -> None:
        """The engine took a step, and wrote its gauges."""
        self.gauge = (self.running, self.waiting)

    def sleep(self, seconds: float) -> None:
        """Sleep, but not past the server's end."""
        if self.stopping.wait(seconds):
            raise Gone


class Handler(BaseHTTPRequestHandler):
    """One request."""

    server_: LyingServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._dispatch(None)

    def do_POST(self) -> None:
        self._dispatch(self.rfile.read(int(self.headers.get("content-length", "0"))))

    def log_message(self, *args: Any) -> None:
        pass

    def _dispatch(self, body: bytes | None) -> None:
        self.close_connection = True
        outer, engine = self.server_, self.server_.engine
        parsed = json.loads(body) if body else None
        outer.requests.append((self.command, self.path, parsed))
        outer.headers.append({k.lower(): v for k, v in self.headers.items()})
        try:
            if self.path in engine.override:
                engine.override[self.path](self)
            elif engine.api_key and self.path != "/health" and not self._authorised():
                self.json(401, {"error": {"message": f"wrong key {self.headers.get('authorization')}", "code": 401}})
            else:
                getattr(self, "at_" + self.path.rpartition("/")[2], self._unknown)(parsed)
        except (Gone, OSError):
            self.close_connection = True

    def _authorised(self) -> bool:
        return bool(self.headers.get("authorization") == f"Bearer {self.server_.engine.api_key}")

    def _unknown(self, _body: Any) -> None:
        self.json(404, {"error": {"message": "File Not Found", "type": "not_found_error", "code": 404}})

    # Sound answers

    def at_health(self, _body: Any) -> None:
        self.json(200, {"status": "ok"})

    def at_models(self, _body: Any) -> None:
        self.json(200, {"object": "list", "data": [{"id": self.server_.engine.model, "object": "model"}]})

    def at_props(self, _body: Any) -> None:
        engine = self.server_.engine
        window = engine.window if engine.stated_window is None else engine.stated_window
        self.json(
            200, {"default_generation_settings": {"n_ctx": window}, "total_slots": engine.slots, "build_info": "lie-1"}
        )

    def at_slots(self, _body: Any) -> None:
        outer, engine = self.server_, self.server_.engine
        others = engine.others if outer.held > engine.lie_above else 0
        busy = outer.running + others
        if others and outer.others_told:  # who asks again has read the first answer
            outer.others_seen.set()
        self.json(200, [{"id": i, "is_processing": i < busy} for i in range(engine.slots)])
        outer.others_told = outer.others_told or others > 0

    def at_metrics(self, body: Any) -> None:
        outer, kind = self.server_, self.server_.engine.gauges
        if not kind:
            self._unknown(body)
            return
        running, waiting = (outer.running, outer.waiting) if kind == "llamacpp" else outer.gauge
        names = {"llamacpp": ("requests_processing", "requests_deferred"), "vllm": _VLLM_GAUGES}[kind]
        text = f"{kind}:{names[0]} {running}\n{kind}:{names[1]} {waiting}\n"
        self.whole(200, text.encode(), "text/plain; version=0.0.4")

    def at_tokenize(self, body: Any) -> None:
        self.json(200, {"tokens": list(range(self._count(body["content"])))})

    def at_completions(self, body: Any) -> None:
        if self.path.endswith("chat/completions"):
            self._complete(body, body["messages"][0]["content"], 7, chat=True)
        elif self.server_.engine.no_completions:
            self._unknown(body)
        else:
            self._complete(body, body["prompt"], 0, chat=False)

    @staticmethod
    def _count(text: str) -> int:
        return len(text.split()) + 1

    def _complete(self, body: Any, prompt: str, template: int, *, chat: bool) -> None:
        outer, engine = self.server_, self.server_.engine
        for name in engine.refuse_fields:
            if name in body or name in body.get("stream_options", {}):
                self.json(400, {"error": {"message": f"unknown field '{name}'", "type": "invalid_request_error"}})
                return
        tokens = self._count(prompt) + template
        if tokens >= engine.window:
            if not engine.truncate:
                self._refuse_window(tokens)
                return
            tokens = engine.window // 2
        answer = min(int(body["max_tokens"]), engine.window - tokens)
        me, ended = object(), False
        try:
            cached = engine.cache and body.get("cache_prompt") is True and prompt in outer.known
            outer.known.add(prompt)
            self.cached = tokens if cached else 0
            self._admit(tokens, me, cached=cached)
            self._answer(body, tokens, answer, chat=chat, me=me)
            ended = True
        except OSError:
            outer.sleep(engine.lingers_s)
            raise
        finally:
            with outer.lock:
                if me in self._mine():
                    outer.running -= 1
                    outer.held -= self._mine().pop(me)
                if outer.leader is me:
                    outer.leader = None
                if ended:
                    outer.stepped()
                outer.lock.notify_all()

    def _mine(self) -> dict[object, int]:
        return self.server_.__dict__.setdefault("_held_by", {})

    def _admit(self, tokens: int, me: object, *, cached: bool = False) -> None:
        outer, engine = self.server_, self.server_.engine
        if engine.never_above is not None and tokens > engine.never_above:
            outer.sleep(3600)
        with outer.lock:
            outer.waiting += 1
            while outer.running >= engine.slots and not outer.stopping.is_set():
                outer.lock.wait()
            outer.waiting -= 1
            outer.running += 1
            outer.stepped()
            outer.most_running = max(outer.most_running, outer.running)
            self._mine()[me] = tokens
            outer.held += tokens
            if outer.leader is None:
                outer.leader = me
            outer.prefilling += 1
        try:
            outer.sleep((1 if cached else tokens) * engine.prefill_s)
        finally:
            outer.prefilling -= 1

    def _refuse_window(self, tokens: int) -> None:
        window = self.server_.engine.window
        error = {
            "code": 400,
            "message": f"request ({tokens} tokens) exceeds the available context size ({window} tokens)",
            "type": "exceed_context_size_error",
            "n_prompt_tokens": tokens,
            "n_ctx": window,
        }
        self.json(400, {"error": error})

    def _answer(self, body: Any, tokens: int, answer: int, *, chat: bool, me: object) -> None:
        engine = self.server_.engine
        stop = engine.finish if tokens > engine.lie_above else "length"
        if engine.eos_after is not None and engine.eos_after < answer:
            answer, stop = engine.eos_after, "stop"
        stream = bool(body.get("stream")) and not engine.ignore_stream
        counted = max(0, tokens - engine.undercount) + int(tokens * engine.overcount)
        usage: dict[str, Any] = {
            "prompt_tokens": counted,
            "completion_tokens": answer,
            "total_tokens": counted + answer,
        }
        if engine.usage_as_text:
            usage = {name: str(count) for name, count in usage.items()}
        if engine.cache:
            usage["prompt_tokens_details"] = {"cached_tokens": self.cached}
        if not stream:
            self._sleep_steps(answer)
            self.json(200, self._whole(answer, stop, usage, chat=chat))
            return
        follows = tokens > engine.lie_above and self.server_.leader is not me
        kept = int(answer * engine.hold_back) if follows else 0
        self.start(200, "text/event-stream")
        pile: list[bytes] = []
        for number, payload in enumerate(self._events(body, tokens, answer, stop, usage, chat=chat, me=me)):
            pile.append(b"data: " + payload + b"\n\n")
            if number >= kept:
                if len(pile) > 1:
                    self.server_.sleep(0.3)
                self.chunk(b"".join(pile))
                pile = []
        self.chunk(b"data: [DONE]\n\n")
        self.end()

    def _whole(self, answer: int, stop: str, usage: dict[str, Any], *, chat: bool) -> dict[str, Any]:
        engine = self.server_.engine
        text = "" if engine.hide_text else "word " * answer
        message = {"role": "assistant", "content": "" if engine.reasoning else text}
        if engine.reasoning:
            message["reasoning_content"] = text
        choice: dict[str, Any] = {"index": 0, "finish_reason": stop}
        choice |= {"message": message} if chat else {"text": text}
        value: dict[str, Any] = {"model": engine.model, "choices": [choice]}
        return value | ({"usage": usage} if engine.usage else {})

    def _events(
        self, body: Any, tokens: int, answer: int, stop: str, usage: dict[str, Any], *, chat: bool, me: object
    ) -> Iterator[bytes]:
        outer, engine = self.server_, self.server_.engine
        big = tokens > engine.lie_above
        if chat:
            yield self._event({"delta": {"role": "assistant", "content": None}})
        for step in range(answer):
            if big and engine.cut_after == step:
                raise Gone
            with outer.lock:
                outer.held += 1
                outer.stepped()
                self._mine()[me] += 1
                over = outer.held > engine.pool
            if over and engine.others:
                outer.others_seen.wait(60)
            if over or (big and engine.error_after == step):
                error = {"code": 500, "message": "Context size has been exceeded.", "type": "server_error"}
                yield json.dumps({"error": error}).encode()
                raise Gone
            while big and engine.stall_others and step and outer.leader not in (me, None):
                outer.sleep(0.01)
            if not engine.burst:
                outer.sleep(engine.step_s + (engine.interferes_s if outer.prefilling else 0))
            text = "" if engine.hide_text else "word "
            event = {"delta": {"content": text}} if chat else {"text": text}
            counts = {"usage": {"prompt_tokens": usage["prompt_tokens"], "completion_tokens": step + 1}}
            named = engine.falls_back_to if big else ""
            nothing = {"usage": None} if engine.usage_as_text else {}
            yield self._event(event, counts if engine.continuous else nothing, model=named)
        yield self._event({"delta": {}, "finish_reason": stop} if chat else {"text": "", "finish_reason": stop})
        if engine.usage and body.get("stream_options", {}).get("include_usage"):
            yield json.dumps({"choices": [], "usage": usage}).encode()

    def _event(self, choice: dict[str, Any], more: dict[str, Any] | None = None, *, model: str = "") -> bytes:
        value = {"model": model or self.server_.engine.model, "choices": [{"index": 0, **choice}], **(more or {})}
        return json.dumps(value).encode()

    def _sleep_steps(self, steps: int) -> None:
        self.server_.sleep(steps * self.server_.engine.step_s)

    # Raw answers

    def json(self, status: int, value: Any) -> None:
        """A whole JSON answer."""
        self.whole(status, json.dumps(value).encode())

    def whole(self, status: int, body: bytes, kind: str = "application/json", **headers: str) -> None:
        """A whole answer of any kind."""
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def start(self, status: int, kind: str) -> None:
        """The head of a chunked answer."""
        self._pending: list[bytes] = []
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Transfer-Encoding", "chunked")
        self.send_header("Connection", "close")
        self.end_headers()

    def chunk(self, data: bytes) -> None:
        """One chunk, at once (or kept for the end in a burst)."""
        framed = f"{len(data):x}\r\n".encode() + data + b"\r\n"
        if self.server_.engine.burst:
            self._pending.append(framed)
        else:
            self.wfile.write(framed)
            self.wfile.flush()

    def end(self) -> None:
        """The last chunk."""
        self.wfile.write(b"".join(self._pending) + b"0\r\n\r\n")


@contextmanager
def lying_server(
    engine: Engine | None = None, host: str = "127.0.0.1", tls: SSLContext | None = None
) -> Iterator[LyingServer]:
    """A server for the length of a ``with`` block."""
    server = LyingServer(engine or Engine(), host, tls)
    try:
        yield server
    finally:
        server.close()


# Lies that replace the answer of a path


def trickle(handler: Handler) -> None:
    """Slow-loris: a byte now and then, for ever."""
    handler.send_response(200)
    handler.send_header("Content-Type", "application/json")
    handler.end_headers()
    while True:
        handler.wfile.write(b" ")
        handler.wfile.flush()
        handler.server_.sleep(0.05)


def trickle_head(handler: Handler) -> None:
    """Slow-loris in the head: the headers never end."""
    handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
    for number in range(1_000_000):
        handler.wfile.write(f"X-{number}: y\r\n".encode())
        handler.wfile.flush()
        handler.server_.sleep(0.05)


def endless(handler: Handler) -> None:
    """A body without end, as fast as it goes."""
    handler.send_response(200)
    handler.send_header("Content-Type", "application/json")
    handler.end_headers()
    while not handler.server_.stopping.is_set():
        handler.wfile.write(b"[" * 65536)


def silent(handler: Handler) -> None:
    """Accepted, and never answered."""
    handler.server_.sleep(3600)


def closed(handler: Handler) -> None:
    """The connection is dropped without an answer."""
    raise Gone


def answers(status: int, body: bytes, kind: str = "application/json", **headers: str) -> Callable[[Handler], None]:
    """A fixed answer."""
    return lambda handler: handler.whole(status, body, kind, **headers)


def answers_json(value: Any, status: int = 200) -> Callable[[Handler], None]:
    """A fixed JSON answer."""
    return answers(status, json.dumps(value).encode())


def after(seconds: float, then: Callable[[Handler], None]) -> Callable[[Handler], None]:
    """Something, late."""

    def late(handler: Handler) -> None:
        handler.server_.sleep(seconds)
        then(handler)

    return late


def now() -> float:
    """Monotonic seconds."""
    return time.monotonic()


def trickle_on(handler: Handler, data: bytes) -> None:
    """More of a chunked answer, for ever."""
    while True:
        handler.chunk(data)
        handler.server_.sleep(0.05)


def proxy_limit(words: int) -> Callable[[Handler], None]:
    """A proxy in front that refuses long bodies with a page of its own."""

    def limited(handler: Handler) -> None:
        body = handler.server_.requests[-1][2]
        if len(body["prompt"].split()) > words:
            handler.whole(413, b"<html>Request Entity Too Large</html>", "text/html")
        else:
            handler.at_completions(body)

    return limited
