"""The guard as an ASGI application: who asks, how much, whether it fits, and then the engine's own answer."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import unquote

from archonctl.guard.access import Line
from archonctl.guard.auth import Client, Headers
from archonctl.guard.forward import Forward
from archonctl.guard.head import check_head, stated_length
from archonctl.guard.hooks import Anywhere, Counter, Door, Placement
from archonctl.guard.limits import Bodies, ClientGone, Limits, PerClient, Receive, Send
from archonctl.guard.prompt import Prompt, takes_cache
from archonctl.guard.reply import Reply
from archonctl.guard.upstream import EngineFault, Request, to_send
from archonctl.guard.values import Ask, Refusal, Refused

Scope = Mapping[str, Any]


class Clients(Protocol):
    """Tells clients apart (``auth``)."""

    def client(self, method: str, path: str, headers: Headers, peer: str) -> Client:
        """Who asks, and the headers to send on. Raises Refused."""


@dataclass
class Guard:
    """One engine's guard."""

    forward: Forward
    door: Door
    counter: Counter
    clients: Clients
    limits: Limits
    log: Callable[[Line], None]
    refused: Callable[[Refusal], None]
    """Counts every request that the guard answers in the engine's place."""
    placement: Placement = field(default_factory=Anywhere)
    fault: Callable[[BaseException], None] = lambda _error: None
    """Hears of defects of the guard's own."""

    def __post_init__(self) -> None:
        self._bodies, self._per_client = Bodies(self.limits), PerClient(self.limits.per_client)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            return
        target = scope["raw_path"].decode("ascii")
        line, reply = Line(scope["method"], target), Reply(send)
        call = _Call(scope, receive, reply, line)
        try:
            await self._answer(call)
        except Refused as refused:
            await self._refuse(call, refused.refusal, "refused")
        except EngineFault as fault:
            await self._refuse(call, fault.refusal, "engine-lost")
        except ClientGone:
            line.end = "client-gone"
        except asyncio.CancelledError:
            await self._refuse(
                call, Refusal(503, "guard-stopping", "the guard is being stopped", retry_after_s=5), "stop"
            )
            raise
        except Exception as error:  # noqa: BLE001  a defect of ours must not take others' requests with it
            self.fault(error)
            why = "the guard has a defect; its log says more"
            await self._refuse(call, Refusal(500, "guard-fault", why), "fault")
        finally:
            line.status, line.first_s, line.out_bytes = reply.status, reply.first_s, reply.sent_bytes
            line.total_s = time.monotonic() - reply.began
            self.log(line)

    async def _refuse(self, call: _Call, refusal: Refusal, end: str) -> None:
        call.line.end, call.line.code = end, refusal.code
        self.refused(refusal)
        if not await call.reply.refuse(refusal, None if call.read else call.receive):
            raise BrokenAnswer(refusal.code)

    async def _answer(self, call: _Call) -> None:
        headers, method = call.scope["headers"], call.scope["method"]
        target = check_head(method, call.target, call.scope["http_version"], headers)
        path = target.partition("?")[0]
        client = self.clients.client(method, path, headers, call.peer)
        call.line.client = client.name
        try:
            kept = to_send(client.headers)
        except UnicodeDecodeError:
            raise Refused(Refusal(400, "request-malformed", "a header holds bytes that are not UTF-8")) from None
        stated = stated_length(headers)
        with self._per_client.one(client.name):
            async with self._bodies.reading(call.receive, stated) as body:
                call.read, call.line.in_bytes = True, len(body)
                request = Request(method, target, kept, body)
                await _while_there(call.receive, self._go(call, client.name, path, request))

    async def _go(self, call: _Call, client: str, path: str, request: Request) -> None:
        # engines decode a path before they match it
        prompt = _prompt(unquote(path), request) if request.method == "POST" else None
        if prompt is None:
            await self.forward.pass_on(request, call.reply)
            return
        ask = await self.counter.ask(client, prompt)
        before = time.monotonic()
        try:
            ticket = await self.door.admit(ask, wait_s=self.limits.wait_s)
        finally:
            call.line.queued_s = time.monotonic() - before
        try:
            call.line.tokens = _tokens_of(ticket.ask)
            placed = await self.placement.place(prompt, ticket)
            try:
                held_to = _in_slot(_limited(request, prompt, ticket.answer_limit), prompt, placed.id_slot)
                call.line.end = await self.forward.generate(held_to, call.reply)
            finally:
                await self.placement.done(placed, call.reply.tail)
        finally:
            ticket.release()


class BrokenAnswer(Exception):
    """An answer that cannot be ended well any more: the connection is closed in the middle of it."""


@dataclass
class _Call:
    scope: Scope
    receive: Receive
    reply: Reply
    line: Line
    read: bool = False
    """True once the request's body was read to its end."""

    @property
    def target(self) -> str:
        query = self.scope["query_string"].decode("ascii")
        path: str = self.scope["raw_path"].decode("ascii")
        return f"{path}?{query}" if query else path

    @property
    def peer(self) -> str:
        return str((self.scope.get("client") or ("unknown",))[0])


def _tokens_of(ask: Ask) -> str:
    """Prompt and longest answer for the log; ``<=``: a bound, not a count; ``?``: not known."""
    prompt = "?" if ask.unknown else f"{'' if ask.exact else '<='}{ask.prompt_tokens}"
    return f"{prompt}+{'?' if ask.max_tokens is None else ask.max_tokens}"


def _prompt(path: str, request: Request) -> Prompt | None:
    """What a request asks of the cache. Raises Refused for a body that should be JSON and is not."""
    if not takes_cache(path):
        return None
    try:
        body = json.loads(request.body.decode("utf-8-sig"))  # of bytes it would also take UTF-16, engines do not
    except (ValueError, RecursionError) as err:
        why = (
            f"the body is no JSON: {str(err)[:100]}" if isinstance(err, json.JSONDecodeError) else "the body is no JSON"
        )
        raise Refused(Refusal(400, "request-not-json", why)) from None
    return Prompt.of(path, body)


def _limited(request: Request, prompt: Prompt, tokens: int | None) -> Request:
    """The request with the longest answer that room is held for, where it would have none."""
    if tokens is None:
        return request
    return Request(request.method, request.target, request.headers, prompt.limited(request.body, tokens))


def _in_slot(request: Request, prompt: Prompt, slot: int | None) -> Request:
    """The request for one slot of the engine; where the client chose one itself, as it is."""
    if slot is None or "id_slot" in prompt.body:
        return request
    head, brace, rest = request.body.partition(b"{")
    comma = b"" if rest.lstrip().startswith(b"}") else b","
    return Request(
        request.method, request.target, request.headers, head + brace + b'"id_slot":%d' % slot + comma + rest
    )


async def _while_there(receive: Receive, work: Awaitable[None]) -> None:
    """Do the work; a client that goes away ends it. Raises ClientGone, and what the work raises."""
    doing = asyncio.current_task()
    assert doing is not None
    going = asyncio.ensure_future(receive())  # the body is read: what still comes is the end of the connection
    gone = False

    def leave(_going: object) -> None:
        nonlocal gone
        gone = doing.cancel()

    going.add_done_callback(leave)
    try:
        await work
    except asyncio.CancelledError:
        if gone and doing.cancelling() == 1:  # nobody else cancelled it: not the guard's stop
            raise ClientGone from None
        raise
    finally:
        if gone:
            doing.uncancel()
        going.remove_done_callback(leave)
        going.cancel()
