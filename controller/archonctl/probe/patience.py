"""Answers that ask to come again (429, 503): how long to wait, and when not to."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from email.utils import parsedate_to_datetime

from archonctl.probe.client import Answer

AGAIN = frozenset({429, 503})
TRIES = 3
MOST_S = 10.0
"""A server that asks for a longer wait is not waited for: it limits a rate, and is not busy for a moment."""
_FIRST_S = 0.5


def pause_s(retry_after: str, attempt: int) -> float | None:
    """Seconds to wait after the ``attempt``-th refusal (from 1); None where it is not worth it.

    ``retry_after`` is the header (RFC 9110, 10.2.3: seconds or a date); one that says nothing is as good as none.
    """
    if attempt >= TRIES:
        return None
    asked = _asked_s(retry_after.strip())
    if asked is None:
        return float(_FIRST_S * 2 ** (attempt - 1))
    return asked if asked <= MOST_S else None


def _asked_s(text: str) -> float | None:
    if text.isascii() and text.isdigit() and len(text) <= 9:
        return float(text)
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    except (ValueError, TypeError, OverflowError, IndexError):
        return None


async def patiently(ask: Callable[[], Awaitable[Answer]]) -> Answer:
    """The answer, asked for again while it says to come again. The last one is returned whatever it is. Raises Fault
    as ``ask`` does."""
    attempt = 1
    while True:
        answer = await ask()
        wait = pause_s(answer.retry_after, attempt) if answer.status in AGAIN else None
        if wait is None:
            return answer
        await asyncio.sleep(wait)
        attempt += 1
