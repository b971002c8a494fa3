"""A request of ours that waits behind those of others: that it is late says nothing of an engine that works on them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import TypeVar

from archonctl.probe.engine import load, read_text
from archonctl.probe.faults import Fault, unseen
from archonctl.probe.metrics import WORK_SAMPLES, samples
from archonctl.probe.session import Session

_T = TypeVar("_T")
_LATE = frozenset({"request-timeout", "never-admitted"})


@dataclass(frozen=True, slots=True)
class _Look:
    """Requests on the engine, ours among them, and a mark that changes while it works; None where nothing tells."""

    total: int
    work: object


async def among_others(session: Session, own: int, bound_s: float, work: Awaitable[_T]) -> _T:
    """Await ``work``, of at most ``own`` requests in ``bound_s`` seconds. Raises Fault ``engine-busy`` ("no evidence")
    where it came late beside requests of others and the engine was seen to work meanwhile; else as ``work`` does."""
    looks: list[_Look] = []
    looking = asyncio.create_task(_look_twice(session, bound_s, looks))
    try:
        return await work
    except Fault as fault:
        others = min((look.total for look in looks), default=0) - own
        if fault.code not in _LATE or fault.status != "fail" or len(looks) < 2 or others < 1 or _stands(*looks):
            raise
        raise unseen(
            "engine-busy",
            f"{others:,} requests of others ran or waited all the time, and the engine worked: {fault.message}",
            expected="0 requests of others",
            actual=f"{others:,} requests",
        ) from fault
    finally:
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)


def _stands(first: _Look, second: _Look) -> bool:
    """True if the engine has done nothing between the two, as far as it tells."""
    return first.work is not None and first.work == second.work


async def _look_twice(session: Session, bound_s: float, looks: list[_Look]) -> None:
    for share in (0.25, 0.5):
        await asyncio.sleep(share * bound_s)
        try:
            now = await load(session)
            looks.append(_Look(now.total if now else 0, await _work(session)))
        except Fault:
            return  # it does not answer at all: not because of others


async def _work(session: Session) -> object:
    """llama.cpp's slots tell how far each has come, others count their tokens."""
    counted = samples(await read_text(session, session.api.metrics) or "", WORK_SAMPLES)
    busy = await read_text(session, session.api.busy) or ""
    slots = busy if '"n_decoded"' in busy else None
    return None if counted is None and slots is None else (counted, slots)
