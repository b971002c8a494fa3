"""Where each conversation of an endpoint would lie, and why, with the numbers that say so."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from archonctl.deployment.schema import Endpoint
from archonctl.errors import HostRefusal
from archonctl.host.capacity import host_capacity
from archonctl.host.profile import Host
from archonctl.plan.parked import expected_hits
from archonctl.plan.price import KvPrice, kv_price, pool_bytes
from archonctl.plan.values import Plan
from archonctl.tiers.live import Live, items
from archonctl.tiers.machine import SHM, Room, room_of
from archonctl.tiers.measured import Measured, Speed
from archonctl.tiers.own import Gift, Loss, OwnTier, gift, losses, own_tiers, pool_tokens
from archonctl.tiers.policy import expected_uses, make_room, place
from archonctl.tiers.prefill import Prefill, prefill_of
from archonctl.tiers.store import Entry, PlaceSpec, Store
from archonctl.tiers.table import ENGINE, Seen, ladder
from archonctl.tiers.values import Board, Item, Placement

_SHOWN = 32
"""Conversations of a declaration that are shown one by one."""


@dataclass(frozen=True, slots=True)
class TiersPlan:
    """Everything that ``tiers plan`` says. What is unknown is None, and ``unknown`` says in words what that keeps."""

    endpoint: str
    engine: str
    engine_version: str
    live: Live | None
    """None: nothing answers, so the declaration's own conversations are shown."""
    price: KvPrice | None
    prefill: Prefill | None
    board: Board
    now: Placement | None
    """None where nothing runs: nobody knows which of the contract's conversations would be idle."""
    arriving_bytes: int | None
    arrival: Placement | None
    """What becomes of the others where one more conversation of the contract's length comes in."""
    own: tuple[OwnTier, ...]
    gift: Gift | None
    expected_hit_ratio: float | None
    to_version: str
    losses: tuple[Loss, ...]
    unknown: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Evidence:
    """What was looked at beside the declaration, all of it optional."""

    live: Live | None = None
    measured: Measured = field(default_factory=Measured)
    verdict: Mapping[str, object] | None = None


def explain(
    name: str, endpoint: Endpoint, plan: Plan, host: Host, evidence: Evidence, *, to_version: str = ""
) -> TiersPlan:
    """The whole answer. ``plan`` was made with ``detail``.

    Raises DeclarationError for a ``to_version`` that is none.
    """
    price = kv_price(plan)
    prefill = prefill_of(
        endpoint, evidence.measured, evidence.live.prefill_tokens_per_s if evidence.live else None, evidence.verdict
    )
    own = own_tiers(endpoint, plan, prefill)
    staged, unread = _staged(endpoint)
    board = _board(endpoint, plan, host, evidence, price, prefill, own, staged)
    arriving = price.bytes_of(endpoint.contract.len) if price else None
    held = sum(each.parked.tokens.low for each in own if each.parked.tokens and each.taken)
    return TiersPlan(
        name,
        endpoint.engine.kind,
        endpoint.engine.version,
        evidence.live,
        price,
        prefill,
        board,
        place(board) if evidence.live else None,
        arriving,
        None if arriving is None else make_room(board, ENGINE, arriving),
        own,
        gift(endpoint, plan, host, price),
        expected_hits(endpoint, pool_tokens(plan), held),
        to_version,
        losses(endpoint, own, to_version) if to_version else (),
        (*_unknown(evidence.live, price, prefill, board), *unread, *_ignored(endpoint)),
    )


def _board(
    endpoint: Endpoint,
    plan: Plan,
    host: Host,
    evidence: Evidence,
    price: KvPrice | None,
    prefill: Prefill | None,
    own: tuple[OwnTier, ...],
    staged: tuple[Item, ...],
) -> Board:
    contract, live = endpoint.contract, evidence.live
    slots = len(live.slots) if live and live.slots is not None else plan.forecast.seqs_limit
    size = price.bytes_of(contract.len) if price else None
    more = 0 if live else max(0, contract.seqs - _SHOWN)  # all alike: they only take their room
    pool = Seen(
        pool_bytes(plan),
        more * (size or 0),
        None if slots is None else max(0, slots - more),
        source="pool by the plan",
        high_water=_pool_mark(plan),
    )
    seen = {ENGINE: pool, **_places(endpoint, host, own)}
    for tier in dict.fromkeys((*seen, *_folders(endpoint))):
        facts, speed = seen.get(tier, Seen()), evidence.measured.tiers.get(tier, Speed())
        ours = sum(each.bytes or 0 for each in staged if each.tier == tier)
        seen[tier] = replace(
            facts,
            capacity_bytes=None if facts.capacity_bytes is None else facts.capacity_bytes + ours,
            bandwidth_bytes_per_s=speed.bandwidth_bytes_per_s,
            latency_s=speed.latency_s,
        )
    tiers = ladder(endpoint.tiers, seen)
    names = {tier.name for tier in tiers}
    if live is not None and live.conversations is not None:
        there = items(live.conversations, price)
    elif live is None:
        there = tuple(
            Item(f"conversation {n + 1}", ENGINE, size, contract.len, 1.0, compressed_bytes=_smaller(endpoint, size))
            for n in range(contract.seqs - more)
        )
    else:
        there = ()  # something runs, and does not say what it holds
    return Board(
        tiers,
        (*there, *(each for each in staged if each.tier in names)),
        prefill.s_per_token if prefill else None,
        endpoint.tiers.high_water,
    )


def _smaller(endpoint: Endpoint, size: int | None) -> int | None:
    """Its bytes in a form that serves as well; None where there is none."""
    share = endpoint.tiers.compressed_share
    return None if share is None or size is None or endpoint.engine.kind == "llamacpp" else int(size * share)


def _pool_mark(plan: Plan) -> float | None:
    """1 where every slot has cells of its own, so that a full one takes nothing from the others (llama.cpp without a
    unified cache); None: as declared."""
    terms = {term.name: term.value for term in plan.forecast.terms}
    return 1.0 if "streams" in terms and terms["streams"] == terms.get("slots") else None


def _places(endpoint: Endpoint, host: Host, own: tuple[OwnTier, ...]) -> dict[str, Seen]:
    """The colder tiers: the engine's own where it has some, else what the machine has room for."""
    if endpoint.engine.kind != "llamacpp":
        return {
            each.parked.cache.row.tier: Seen(each.parked.cache.bytes, source=f"--{each.parked.cache.row.flag}")
            for each in own
            if each.taken
        }
    found: dict[str, Seen] = {}
    here = host.source == "sysfs"
    declared = endpoint.tiers
    ram = host_capacity(host)
    if here and (room := room_of(Path(declared.dram.path) if declared.dram and declared.dram.path else SHM)):
        free = min(room.free_bytes, ram.free_bytes) if ram.free_known else room.free_bytes
        found["dram"] = Seen(free, source=f"free in {room.path} and in RAM" + _not_ram(room))
    elif ram.free_known or ram.known:
        found["dram"] = Seen(ram.free_bytes if ram.free_known else ram.total_bytes, source="RAM by the host profile")
    if here and declared.disk and declared.disk.path and (room := room_of(Path(declared.disk.path))):
        found["disk"] = Seen(room.free_bytes, source=f"free in {room.path}" + (" (a tmpfs)" * bool(room.in_ram)))
    return found


def _not_ram(room: Room) -> str:
    return " (no tmpfs: a disk)" if room.in_ram is False else ""


def _folders(endpoint: Endpoint) -> dict[str, Path]:
    """Those that the executor stages into, the hottest first."""
    declared = (("dram", endpoint.tiers.dram), ("disk", endpoint.tiers.disk))
    llama = endpoint.engine.kind == "llamacpp"
    return {name: Path(at.path) for name, at in declared if llama and at is not None and at.path}


def _staged(endpoint: Endpoint) -> tuple[tuple[Item, ...], tuple[str, ...]]:
    """What the executor staged in the declared folders, where nothing is changed; and what cannot be told of it."""
    found: list[Item] = []
    unread: list[str] = []
    hotter: set[str] = set()
    for name, path in _folders(endpoint).items():
        try:
            path.stat()
            store = Store([PlaceSpec(name, path, 0, name == "dram")], lock=False)
        except (FileNotFoundError, NotADirectoryError):
            continue  # nothing was staged yet
        except (OSError, ValueError, HostRefusal) as err:
            why = err.message if isinstance(err, HostRefusal) else getattr(err, "strerror", None) or str(err)
            unread.append(f"what is staged in {name}: {path}: {why}")
            continue
        with contextlib.closing(store):
            found += [_item(each, name) for each in store.entries.values() if each.staged.id not in hotter]
            hotter |= set(store.entries)
    return tuple(found), tuple(unread)


def _item(entry: Entry, tier: str) -> Item:
    staged, idle_s = entry.staged, max(0.0, time.time() - entry.staged.at)
    uses = expected_uses(staged.uses + 1, idle_s)
    return Item(f"staged {staged.id[:8]}", tier, staged.bytes, staged.tokens, uses, idle_s)


def _unknown(live: Live | None, price: KvPrice | None, prefill: Prefill | None, board: Board) -> list[str]:
    """What is not known, and what follows from that."""
    found = []
    if price is None:
        found.append("what a token of KV cache weighs: the plan has no law for it, so nothing is moved")
    if prefill is None:
        found.append(
            "how fast the engine prefills: no counter, verdict or declaration says it, so all is kept "
            "(--set tiers.prefill_tokens_per_s=N)"
        )
    for tier in board.tiers:
        if tier.capacity_bytes is None:
            found.append(f"the capacity of {tier.name}: nothing is moved out of it, and nothing into it")
    if live is not None:
        found += live.gaps
        if live.slots is None and not live.gaps:
            found.append("which conversations the engine holds: it has no address that tells")
    return found


def _ignored(endpoint: Endpoint) -> Iterator[str]:
    if endpoint.tiers.compressed_share is not None and endpoint.engine.kind == "llamacpp":
        yield "a smaller form of a conversation: llama-server has none, so compressed_share counts for nothing"
