"""From an admitted request to its answer: waiting for an engine that is away, passing on, one more try."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from archonctl.guard.events import Events
from archonctl.guard.hooks import Counts
from archonctl.guard.limits import Limits
from archonctl.guard.reply import Reply
from archonctl.guard.retry import LOOKED_AT_BYTES, Kind, table, trim
from archonctl.guard.upstream import Answer, EngineAway, Request, Upstream

WHOLE_BYTES = 8 << 20
"""An answer with a known length up to this is read before any of it is sent: one that breaks off is then an error."""
_TRIM_S = 5.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 1.0


class Forward:
    """Sends requests to one engine and its answers to clients."""

    def __init__(
        self,
        engine: str,
        upstream: Upstream,
        limits: Limits,
        counts: Counts,
        engine_key: str = "",
        on_away: Callable[[], None] = lambda: None,
    ) -> None:
        self._engine, self._upstream, self._limits, self._counts = engine, upstream, limits, counts
        self._key, self._on_away = engine_key, on_away
        self._one_at_a_time = asyncio.Lock()

    async def pass_on(self, request: Request, reply: Reply) -> None:
        """A request that takes no KV cache: once, and as it comes. Raises EngineFault."""
        async with self._upstream.send(request) as answer:
            await self._relay(answer, reply, request, last=True)

    async def generate(self, request: Request, reply: Reply) -> str:
        """A request that does: waits for an engine that is away, tries a second time where memory ran out.

        Gives what happened, in a word for the log. Raises EngineFault.
        """
        async with self._there(request) as answer:
            if await self._relay(answer, reply, request, last=False):
                return "passed"
        self._counts.retry("attempted")
        succeeded = False
        try:
            # One after the other: those that ran out together would do so again.
            async with self._one_at_a_time:
                await trim(self._engine, self._ask)
                async with self._there(request) as answer:
                    succeeded = answer.status < 400
                    await self._relay(answer, reply, request, last=True)
        except BaseException:
            succeeded = False
            raise
        finally:
            self._counts.retry("succeeded" if succeeded else "failed")
        return "retried"

    @asynccontextmanager
    async def _there(self, request: Request) -> AsyncIterator[Answer]:
        """The answer of an engine that serves. One that is away or loading is waited for, within ``wait_s``.

        An engine that is away was sent nothing, and one that loads did nothing: asking again repeats no work.
        """
        ends, pause_s = asyncio.get_running_loop().time() + self._limits.wait_s, _FIRST_PAUSE_S
        while True:
            late = asyncio.get_running_loop().time() + pause_s > ends
            try:
                async with self._upstream.send(request) as answer:
                    if late or not await self._loading(answer):
                        yield answer
                        return
            except EngineAway:
                self._on_away()
                if late:
                    raise
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    async def _loading(self, answer: Answer) -> bool:
        if answer.status not in table().statuses(self._engine) or answer.status < 500:
            return False
        await answer.keep(LOOKED_AT_BYTES)
        return self._kind(answer) == "loading"

    def _kind(self, answer: Answer) -> Kind | None:
        return table().kind(self._engine, answer.status, answer.kept)

    async def _relay(self, answer: Answer, reply: Reply, request: Request, *, last: bool) -> bool:
        """Pass an answer on; False, and nothing sent, where memory ran out and it is not the ``last`` try."""
        stated = answer.length
        if answer.is_events and request.method != "HEAD":
            return await self._relay_events(answer, reply, last=last)
        if stated is not None and stated <= WHOLE_BYTES and request.method != "HEAD":
            body = await answer.read()
            if not last and self._kind(answer) == "memory":
                return False
            await reply.whole(answer.status, answer.headers, body)
            return True
        await reply.start(answer.status, answer.headers)
        async for piece in answer.pieces():
            await reply.piece(piece)
        await reply.end()
        return True

    async def _relay_events(self, answer: Answer, reply: Reply, *, last: bool) -> bool:
        events = Events()
        async for piece in answer.pieces():
            whole = events.feed(piece)
            if not whole:
                continue
            if not reply.status:
                # engines that answer 200 before they begin say in the first event what went wrong
                if not last and table().kind_of_event(self._engine, whole) == "memory":
                    return False
                await reply.start(answer.status, answer.headers)
            reply.events = not events.torn
            await reply.piece(whole)
        if not reply.status:
            await reply.start(answer.status, answer.headers)
        await reply.end(events.end())
        return True

    async def _ask(self, method: str, path: str) -> tuple[int, bytes]:
        return await self._upstream.ask(method, path, key=self._key, within_s=_TRIM_S)
