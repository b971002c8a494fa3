"""The HTTP surface: generation, tokenizer, health, load and metrics, in the shapes of public 1.0.x."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from support.radiance_sim.config import Simulation
from support.radiance_sim.engine import Engine, Sequence, TooLong
from support.radiance_sim.flags import Options
from support.radiance_sim.requests import BadRequest, Wanted, parse, tokens
from support.radiance_sim.web import Request, Response

NAME = "radiance-simulator"
OPEN_PATHS = frozenset({"/health", "/ping", "/", "/dashboard"})
WORDS = ("so", "the", "answer", "goes", "on", "and", "on", "here")


def failure(status: int, message: str, field: str | None = None, code: str | None = None, kind: str = "") -> Response:
    """An error object."""
    kind = kind or ("invalid_request_error" if status == 400 else "internal_server_error")
    return Response.of({"error": {"message": message, "type": kind, "param": field, "code": code}}, status)


class Server:
    """Routes by method and path."""

    def __init__(self, engine: Engine, options: Options, simulation: Simulation) -> None:
        self.engine, self.options, self.simulation = engine, options, simulation
        self.started = time.time()
        self.rejected = 0
        model = options.text("--model").rpartition("/")[2].rpartition(".")[0]
        self.model = options.text("--served-model-name") or model
        self.queue_cap = options.number("--max-queued-requests") or 8 * engine.budget.seqs
        get: dict[str, Callable[[], Response]] = {
            **dict.fromkeys(("/health", "/ping"), self._health),
            "/load": self._load,
            "/version": self._version,
            "/server_info": self._server_info,
            "/stats": self._stats,
            "/graph": lambda: Response.of({"simulated": True, "layers": 48}),
            **dict.fromkeys(("/", "/dashboard"), self._dashboard),
            "/sessions": lambda: Response.of({"sessions": []}),
            "/metrics": self._metrics,
            "/v1/models": self._models,
        }
        post: dict[str, Callable[[Request], Awaitable[Response]]] = {
            "/v1/chat/completions": lambda request: self._generate(request, chat=True),
            "/v1/completions": lambda request: self._generate(request, chat=False),
            "/tokenize": self._tokenize,
            "/reset_prefix_cache": self._reset,
        }
        self._get, self._post = get, post

    async def __call__(self, request: Request) -> Response:
        """One request."""
        key = self.options.text("--api-key")
        if key and request.path not in OPEN_PATHS and request.headers.get("authorization") != f"Bearer {key}":
            return failure(401, "a bearer key is needed", kind="authentication_error")
        if request.method == "GET" and request.path in self._get:
            return self._get[request.path]()
        if request.method == "POST" and request.path in self._post:
            return await self._post[request.path](request)
        known = request.path in self._get or request.path in self._post
        return failure(405 if known else 404, f"no {request.method} {request.path}", kind="not_found_error")

    # ------------------------------------------------------------------ generation

    async def _generate(self, request: Request, *, chat: bool) -> Response:
        window, cap = self.engine.budget.length, self.options.number("--max-tokens-cap")
        try:
            wanted = parse(request.body, chat=chat, window=window, model=self.model, cap=cap)
            if self.engine.stopping or self.engine.in_flight >= self.queue_cap:
                return self._overloaded()
            seq = Sequence(wanted.prompt, wanted.answer, self._stop_at(wanted))
            self.engine.submit(seq)
        except BadRequest as bad:
            return failure(400, str(bad), bad.field or None, bad.code)
        except TooLong as long:
            return failure(400, str(long), "messages" if chat else "prompt", "context_length_exceeded")
        if wanted.stream:
            return Response(
                content_type="text/event-stream; charset=utf-8",
                headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"},
                stream=self._stream(seq, wanted),
                on_close=lambda: self.engine.drop(seq),
            )
        try:
            while not seq.finish:
                seq.news.clear()
                await seq.news.wait()
        finally:
            self.engine.drop(seq)
        if seq.error:
            return failure(400 if not self.engine.stopping else 503, seq.error)
        return Response.of(self._whole(seq, wanted))

    def _overloaded(self) -> Response:
        self.rejected += 1
        wait = str(self.options.number("--retry-after", 1))
        response = failure(429, "the admission queue is full", code="server_overloaded", kind="rate_limit_error")
        return Response(429, response.body, headers={"Retry-After": wait})

    def _stop_at(self, wanted: Wanted) -> int:
        if wanted.ignore_eos:
            return wanted.answer
        thinking = self.simulation.reasoning_tokens if wanted.thinks else 0
        return thinking + self.simulation.answer_tokens

    def _texts(self, wanted: Wanted, start: int, end: int) -> tuple[str, str]:
        """Reasoning and content of answer tokens ``start`` to ``end``."""
        border = self.simulation.reasoning_tokens if wanted.thinks else 0
        said = [f" {WORDS[i % len(WORDS)]}" for i in range(start, end)]
        split = max(0, min(border, end) - start)
        return "".join(said[:split]), "".join(said[split:])

    def _whole(self, seq: Sequence, wanted: Wanted) -> dict[str, Any]:
        reasoning, content = self._texts(wanted, 0, seq.produced)
        choice: dict[str, Any] = {"index": 0, "finish_reason": seq.finish, "logprobs": None}
        if wanted.chat:
            choice["message"] = {"role": "assistant", "content": content, "reasoning_content": reasoning}
        else:
            choice["text"] = content
        return {**self._envelope(wanted), "choices": [choice], "usage": self._usage(seq)}

    def _envelope(self, wanted: Wanted, *, chunk: bool = False) -> dict[str, Any]:
        kind = ("chat.completion.chunk" if chunk else "chat.completion") if wanted.chat else "text_completion"
        prefix = "chatcmpl-" if wanted.chat else "cmpl-"
        return {
            "id": prefix + uuid.uuid4().hex,
            "object": kind,
            "created": int(time.time()),
            "model": wanted.model,
        }

    def _usage(self, seq: Sequence) -> dict[str, int]:
        total = seq.prompt + seq.produced
        return {"prompt_tokens": seq.prompt, "completion_tokens": seq.produced, "total_tokens": total}

    async def _stream(self, seq: Sequence, wanted: Wanted) -> AsyncIterator[bytes]:
        envelope = self._envelope(wanted, chunk=True)

        def event(choice: dict[str, Any]) -> bytes:
            body = {**envelope, "choices": [{"index": 0, "finish_reason": None, **choice}]}
            return b"data: " + json.dumps(body).encode() + b"\n\n"

        if wanted.chat:
            yield event({"delta": {"role": "assistant", "content": ""}})
        sent = 0
        while not seq.finish or sent < seq.produced:
            if sent == seq.produced:
                seq.news.clear()
                if not seq.finish:
                    await seq.news.wait()
                continue
            now = seq.produced
            reasoning, content = self._texts(wanted, sent, now)
            sent = now
            if not wanted.chat:
                yield event({"text": content, "logprobs": None})
            if wanted.chat and reasoning:
                yield event({"delta": {"reasoning_content": reasoning}})
            if wanted.chat and content:
                yield event({"delta": {"content": content}})
        if seq.error:
            yield b"data: " + failure(500, seq.error).body + b"\n\ndata: [DONE]\n\n"
            return
        last: dict[str, Any] = {"delta": {}} if wanted.chat else {"text": ""}
        yield event({**last, "finish_reason": seq.finish})
        if wanted.usage:
            body = {**envelope, "choices": [], "usage": self._usage(seq)}
            yield b"data: " + json.dumps(body).encode() + b"\n\n"
        yield b"data: [DONE]\n\n"

    # ------------------------------------------------------------------ questions about the server

    async def _tokenize(self, request: Request) -> Response:
        try:
            value = json.loads(request.body or b"{}")
        except ValueError:
            value = None
        text = value.get("prompt") if isinstance(value, dict) else None
        if not isinstance(text, str):
            return failure(400, "prompt: must be a string", "prompt")
        count = tokens(text)
        window = self.engine.budget.length
        return Response.of({"count": count, "max_model_len": window, "tokens": [7] * count, "token_strs": None})

    async def _reset(self, _request: Request) -> Response:
        return Response.of({"entries_dropped": 0})

    def _health(self) -> Response:
        stopping = self.engine.stopping
        body = {"status": "stopping" if stopping else "ok", "model": self.model}
        load = {"in_flight": self.engine.in_flight, "queue_cap": self.queue_cap}
        return Response.of(body | load, 503 if stopping else 200)

    def _dashboard(self) -> Response:
        return Response(body=b"<title>radiance SIMULATOR</title>", content_type="text/html; charset=utf-8")

    def _load(self) -> Response:
        engine = self.engine
        queue = {"running": len(engine.running), "waiting": len(engine.waiting)}
        return Response.of({"server_load": engine.in_flight, "queue_cap": self.queue_cap, **queue})

    def _version(self) -> Response:
        return Response.of({"version": self.simulation.version, "engine": NAME, "abi_version": 0})

    def _models(self) -> Response:
        entry = {"id": self.model, "object": "model", "created": int(self.started), "owned_by": NAME}
        return Response.of({"object": "list", "data": [entry]})

    def _server_info(self) -> Response:
        budget = self.engine.budget
        server = {
            "model": self.model,
            "version": self.simulation.version,
            "max_model_len": budget.length,
            "max_num_seqs": budget.seqs,
            "queue_cap": self.queue_cap,
            "uptime_s": int(time.time() - self.started),
            "in_flight": self.engine.in_flight,
        }
        capabilities = {"chat": True, "reasoning": True, "logprobs": False, "simulated": True}
        endpoints = sorted([*self._get, *self._post])
        return Response.of(
            {"server": server, "request_defaults": {}, "capabilities": capabilities, "endpoints": endpoints}
        )

    def _stats(self) -> Response:
        engine = self.engine
        return Response.of({"simulated": True, "kv_pool_tokens": engine.pool, "kv_held_tokens": engine.held})

    def _metrics(self) -> Response:
        engine, label = self.engine, f'{{model_name="{self.model}"}}'
        ratio = engine.accepted / engine.drafted if engine.drafted else 0.0
        rows = {
            "vllm:num_requests_running": len(engine.running),
            "vllm:num_requests_waiting": len(engine.waiting),
            "vllm:kv_cache_usage_perc": engine.held / max(1, engine.pool),
            "vllm:gpu_prefix_cache_hit_rate": 0.0,
            "vllm:prompt_tokens_total": engine.prompt_tokens,
            "vllm:generation_tokens_total": engine.answer_tokens,
            "radiance:engine_steps_decode_total": engine.decode_steps,
            "radiance:engine_steps_prefill_total": engine.prefill_steps,
            "radiance:engine_steps_mixed_total": engine.mixed_steps,
            "radiance:engine_step_seconds_decode_total": round(engine.decode_seconds, 6),
            "radiance:num_requests_preempted": sum(seq.preempted for seq in engine.waiting),
            "radiance:http_queue_depth": engine.in_flight,
            "radiance:http_admission_rejected_total": self.rejected,
            "radiance:prefix_cache_evictions_total": 0,
            "radiance:prefix_cache_ckpt_evictions_total": 0,
            "radiance:draft_acceptance_ratio": round(ratio, 4),
        }
        text = "".join(f"{name}{label} {value}\n" for name, value in rows.items())
        return Response(body=text.encode(), content_type="text/plain; version=0.0.4")
