"""The placement of a guard as a declaration asks for it: folders, limits, what is written down at the end."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from prometheus_client import CollectorRegistry

from archonctl.deployment.schema import Endpoint
from archonctl.deployment.tiers import TierPlace, Tiers
from archonctl.errors import HostRefusal
from archonctl.guard.hooks import Anywhere, Placement
from archonctl.guard.placement import Placer
from archonctl.guard.upstream import Upstream
from archonctl.memory.interval import MIB
from archonctl.service.preflight import split_listen
from archonctl.tiers.counts import TierCounts
from archonctl.tiers.executor import Executor, Setup
from archonctl.tiers.measured import read_measured
from archonctl.tiers.running import running_arguments
from archonctl.tiers.slots import SlotClient
from archonctl.tiers.store import PlaceSpec, Store
from archonctl.tiers.upkeep import Upkeep

_FREE_SHARE = 0.5
"""Of the free space of a folder's file system, where its capacity is not declared (a choice)."""
_ASK_S = 300.0
"""The last bound of a question; each has a shorter one of its own."""

_LEAVE_S = 20.0
"""For what only slots hold, when the guard ends: inside of what its unit's TimeoutStopSec= leaves after --drain."""


@dataclass(frozen=True)
class Tiering:
    """What is declared of the tiers of one llama-server."""

    declared: Tiers
    places: tuple[tuple[str, TierPlace], ...]
    """The folders, the engine's own (its ``--slot-save-path``) first."""
    port: int
    model_file: Path | None = None
    measured_in: Path | None = None
    """Where the speeds that were measured are kept."""


def tiering_of(endpoint: Endpoint, measured_in: Path | None = None) -> Tiering | None:
    """``None`` where the declaration names no folder, or the engine is one that has tiers of its own."""
    declared = endpoint.tiers
    named = (("dram", declared.dram), ("disk", declared.disk))
    places = tuple((name, place) for name, place in named if place and place.path and place.capacity_mib != 0)
    if endpoint.engine.kind != "llamacpp" or not places:
        return None
    port = split_listen(endpoint.service.listen)[1]
    return Tiering(declared, places, port, _seen(Path(endpoint.model.path)), measured_in)


def _seen(model: Path) -> Path | None:
    try:
        return model if model.is_file() else None
    except OSError:  # below a folder that this account may not look into
        return None


def specs_of(tiering: Tiering, *, make: bool = True) -> list[PlaceSpec]:
    """The folders, made where they are missing. Raises HostRefusal ``tiers-folder-unsafe``."""
    made = []
    for name, place in tiering.places:
        path = Path(place.path)
        if not path.is_absolute():
            raise HostRefusal("tiers-folder-unsafe", "a path that begins with / is wanted", where=place.path)
        try:
            if make:
                path.mkdir(mode=0o700, parents=True, exist_ok=True)
            free = shutil.disk_usage(path).free
        except OSError as err:
            raise HostRefusal("tiers-folder-unsafe", err.strerror or str(err), where=place.path) from None
        quota = int(free * _FREE_SHARE) if place.capacity_mib is None else place.capacity_mib * MIB
        made.append(PlaceSpec(name, path, quota, memory=name == "dram"))
    return made


@asynccontextmanager
async def placing(
    tiering: Tiering | None, upstream: Upstream, key: str, registry: CollectorRegistry, say: Callable[[str], None]
) -> AsyncIterator[Placement]:
    """The placement while a guard serves. Folders that cannot be used are said, and the guard serves without."""
    if tiering is None:
        yield Anywhere()
        return

    async def send(method: str, path: str, body: bytes | None, _most_bytes: int) -> tuple[int, bytes]:
        return await upstream.ask(method, path, body or b"", key, within_s=_ASK_S)

    try:
        store = await asyncio.to_thread(lambda: Store(specs_of(tiering)))
    except HostRefusal as err:
        say(f"tiers: conversations are left to the engine: {err}")
        yield Anywhere()
        return
    setup = Setup(tiering.declared, partial(running_arguments, tiering.port), tiering.model_file)
    executor = Executor(setup, SlotClient(send), store, TierCounts(registry, say))
    if tiering.measured_in is not None:
        executor.speeds.recall(read_measured([tiering.measured_in]))
    placer, upkeep = Placer(executor, say), Upkeep(executor, tiering.measured_in, say)
    looking = asyncio.create_task(upkeep.run())
    try:
        yield placer
    finally:
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)
        await placer.leave(_LEAVE_S)
        await upkeep.write()
        store.close()
