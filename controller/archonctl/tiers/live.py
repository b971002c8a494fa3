"""What a running engine says of its conversations and of its prefill: at most two bounded requests, nothing changed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from archonctl.deployment.schema import Endpoint
from archonctl.engines import adapter
from archonctl.errors import DeclarationError
from archonctl.observe.samples import normalised
from archonctl.plan.price import KvPrice
from archonctl.probe.address import addresses, read_key
from archonctl.probe.client import Http
from archonctl.probe.faults import Fault
from archonctl.probe.limits import Limits
from archonctl.tiers.prefill import seen_speed
from archonctl.tiers.slots import Slot, SlotClient, SlotError
from archonctl.tiers.table import ENGINE
from archonctl.tiers.values import Item

_BOUNDS = Limits(connect_s=2.0, read_s=5.0)


@dataclass(frozen=True, slots=True)
class Live:
    """What was answered. ``slots`` is None where the engine has none, or does not show them (see ``gaps``)."""

    where: str
    slots: tuple[Slot, ...] | None
    prefill_tokens_per_s: float | None
    prefix_hit_ratio: float | None
    gaps: tuple[str, ...] = ()

    @property
    def conversations(self) -> tuple[Slot, ...] | None:
        """Slots that hold something: a busy one may not say how much."""
        return None if self.slots is None else tuple(each for each in self.slots if each.busy or each.tokens)


def ask(endpoint: Endpoint) -> Live | None:
    """Ask the engine; None where nothing answers at its address."""
    return asyncio.run(_ask(endpoint))


async def _ask(endpoint: Endpoint) -> Live | None:
    kind, where = endpoint.engine.kind, addresses(endpoint.service)
    gaps: list[str] = []
    answers = 0
    async with Http(where, _key(endpoint.service.api_key_file), _BOUNDS) as http:

        async def send(_method: str, path: str, _body: bytes | None, most_bytes: int) -> tuple[int, bytes]:
            nonlocal answers
            try:
                answer = await http.get(path, _BOUNDS.read_s, most_bytes)
            except Fault as fault:
                raise OSError(fault.message) from None
            answers += 1
            return answer.status, answer.body

        slots, metrics = None, ""
        if kind == "llamacpp":
            try:
                slots = await SlotClient(send, look_s=_BOUNDS.read_s).slots()
            except SlotError as err:
                gaps.append(f"/slots: {err}")
        if path := adapter(kind).api.metrics:
            try:
                status, body = await send("GET", path, None, _BOUNDS.body_bytes)
                metrics = body.decode("utf-8", "replace") if status == 200 else ""
                gaps += [] if status == 200 else [f"{path}: HTTP {status}"]
            except OSError as err:
                gaps.append(f"{path}: {err}")
    if not answers:
        return None
    return Live(where.own, slots, seen_speed(kind, metrics), _hits(kind, metrics), tuple(gaps))


def items(found: Sequence[Slot], price: KvPrice | None) -> tuple[Item, ...]:
    """Conversations as the policy takes them. Nobody knows who comes back: what had a request later counts more."""
    order = sorted(found, key=lambda each: -1 if each.task is None else each.task, reverse=True)
    return tuple(
        Item(
            f"slot {each.id}",
            ENGINE,
            price.bytes_of(each.tokens) if price and each.tokens is not None else None,
            each.tokens,
            expected_uses=1 / (1 + place),
            in_use=each.busy,
        )
        for place, each in enumerate(order)
    )


def _hits(engine: str, metrics: str) -> float | None:
    """Share of prompt tokens that the prefix cache had since the engine started."""
    seen = normalised(engine, metrics)
    queries = seen.get("archon_engine_prefix_queries_tokens_total", 0.0)
    if queries > 0 and "archon_engine_prefix_hits_tokens_total" in seen:
        return seen["archon_engine_prefix_hits_tokens_total"] / queries
    return seen.get("archon_engine_prefix_hit_ratio")


def _key(path: str) -> str:
    """The key, where this account may read it; most engines show this without."""
    try:
        return read_key(path)
    except DeclarationError:
        return ""
