"""One thing at a time with an engine's slots and its files, each to its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TypeVar

_T = TypeVar("_T")


class Turns:
    """Whose turn it is."""

    def __init__(self) -> None:
        self.waiting = 0
        """How many wait: what can be put off is put off for them."""
        self.running: asyncio.Task[object] | None = None
        """What was begun last; it may be done."""
        self._turn = asyncio.Lock()

    async def begin(self, work: Callable[[], Coroutine[object, object, _T]]) -> asyncio.Task[_T]:
        """Begin one thing when it is its turn. Await it shielded: it comes to its end if who asked is cancelled.

        Who is cancelled while it waits has begun nothing.
        """
        self.waiting += 1
        try:
            await self._turn.acquire()
        finally:
            self.waiting -= 1
        task = asyncio.ensure_future(work())
        task.add_done_callback(lambda _done: self._turn.release())
        self.running = task
        return task
