"""What the running release was verified to hold, joined with what the live engine states.

On disk: the boot log of the very start that runs, as a stored verdict on it has it, or as the log itself still tells;
where neither can be read, that of an earlier start of the same release. Live: what the engine states over HTTP. That
comes first, since it may have been started again a moment ago; a boot log that contradicts it is of another start and
counts for nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from archonctl.deployment.load import LoadedEndpoint
from archonctl.errors import ArchonError
from archonctl.guard.live import Live, live_of
from archonctl.guard.values import Capacity
from archonctl.ledger.values import BootLedger
from archonctl.probe.ledger_leg import pool_reading
from archonctl.probe.report import EngineReport, contradicts
from archonctl.release.store import DIGEST_CHARS
from archonctl.service.installed import Installed
from archonctl.service.kept_boot import kept_boot
from archonctl.service.lookup import boot_log, find_installed, find_running
from archonctl.service.state import EndpointState, Running, state_dir
from archonctl.service.verdict_store import kept, load

_WINDOWS = ("n_ctx_slot", "max_model_len", "context_len", "request_limit_tokens")
"""Figures of a boot log that bound one request (``probe.ledger_leg``)."""
_SLOTS = ("n_slots", "max_running_requests", "max_num_seqs")
_PAGE_TOKENS = {"radiance": 4}
"""Source: the KV page of radiance as measured on the archon host; vLLM states its block size."""
_QUEUES = frozenset({"vllm", "sglang"})
"""Engines that preempt or hold back a sequence that has no room: vllm/v1/core/sched/scheduler.py, and
sglang/srt/managers/scheduler.py (``retract_decode``)."""


@dataclass(frozen=True)
class OnDisk:
    """What the state folder says. ``start`` names the very process that runs; empty where none is known."""

    start: str = ""
    release: str = ""
    ledger: BootLedger | None = None
    source: str = ""


def joined(
    kind: str, disk: OnDisk, live: Live, sequence_tokens: int | None = None, *, slides: bool = False
) -> Capacity:
    """The capacity by everything that is known; None for what nobody says. Pure. ``sequence_tokens`` and ``slides``
    are declared."""
    report, ledger, source = live.report, disk.ledger, disk.source
    if ledger is not None and report is not None and contradicts(report, ledger):
        ledger, source = None, ""
    said = report or EngineReport("")
    windows = [said.window, *(_low(ledger, name) for name in _WINDOWS)]
    slots = [said.slots, *(_low(ledger, name) for name in (*_SLOTS, *(("n_seqs",) if kind == "radiance" else ())))]
    sources = [source] if ledger is not None else []
    return Capacity(
        window_tokens=min((each for each in windows if each), default=None),
        pool_tokens=said.kv_tokens or _pool(ledger),
        slots=min((each for each in slots if each), default=None),
        page_tokens=_PAGE_TOKENS.get(kind) or said.block_tokens or 1,
        queues=kind in _QUEUES,
        slides=slides,
        answer_tokens=live.answer_tokens,
        sequence_tokens=sequence_tokens,
        replicas=said.replicas,
        release=disk.release,
        source=" and ".join([*sources, *([said.source] if not said.says_nothing else [])]),
    )


def _low(ledger: BootLedger | None, name: str) -> int | None:
    value = ledger.get(name) if ledger is not None else None
    return int(value.low) if value is not None else None


def _pool(ledger: BootLedger | None) -> int | None:
    reading = pool_reading(ledger) if ledger is not None else None
    return int(reading.value.low) if reading is not None else None


def on_disk(name: str, installed: Installed | None, environ: Mapping[str, str], before: OnDisk) -> OnDisk:
    """What is known of the start that runs now. Cheap where it is still the one of ``before``. Raises ArchonError."""
    state = installed.state if installed is not None else EndpointState(state_dir(environ), name)
    running = find_installed(name, installed.where) if installed is not None else find_running(state)
    if running is None:
        return OnDisk()
    start = f"{running.boot_id}/{running.pid}/{running.start_ticks}/{running.invocation}"
    if start == before.start and before.ledger is not None:
        return before
    digest = Path(running.release).name[:DIGEST_CHARS] if running.release else ""
    folders = dict.fromkeys((state.folder, *((installed.folder,) if installed is not None else ())))
    return _read(running, start, digest, tuple(folders))


def _read(running: Running, start: str, digest: str, folders: tuple[Path, ...]) -> OnDisk:
    for folder in folders:
        if (ledger := kept_boot(folder, digest, running.invocation)) is not None:
            return OnDisk(start, digest, ledger, "the verdict on this start")
    if (ledger := _logged(running)) is not None:
        return OnDisk(start, digest, ledger, "its boot log")
    for folder in folders if digest else ():
        for each in kept(folder, digest):
            with contextlib.suppress(ArchonError):
                stored = load(each.path)
                if stored.ledger is not None and stored.ledger.figures:
                    return OnDisk(start, digest, stored.ledger, "a verdict on an earlier start of this release")
    return OnDisk(start, digest)


def _logged(running: Running) -> BootLedger | None:
    """The boot log itself, where this account may read it and it says how large the pool is."""
    from archonctl.ledger.reader import LedgerReader
    from archonctl.release.load import load_release

    try:
        engine = load_release(Path(running.release)).loaded.endpoint.engine if running.release else None
        text = boot_log(running)
    except ArchonError:
        return None
    reader = LedgerReader(engine.kind if engine else "", engine.version if engine else "")
    reader.feed_block(text)
    found = reader.result()
    return found if found.figures else None


class CapacityWatch:
    """Reads the capacity again when it is asked to, in a thread of its own."""

    def __init__(
        self,
        loaded: LoadedEndpoint,
        installed: Installed | None,
        environ: Mapping[str, str],
        on_new_engine: Callable[[], None] = lambda: None,
        trouble: Callable[[str], None] = lambda _: None,
    ) -> None:
        """``on_new_engine`` is called where another process, or one that states something else, answers now."""
        self._loaded, self._installed, self._environ = loaded, installed, environ
        self._on_new_engine, self._trouble = on_new_engine, trouble
        self._disk, self._live, self._said = OnDisk(), Live(), ""
        self.capacity = Capacity()

    async def refresh(self) -> Capacity:
        """Read what is on disk and what the engine states; cheap. Never raises: what cannot be read is unknown.

        While the engine does not answer, what it stated before stands, as long as the same process runs.
        """
        disk, live = await asyncio.to_thread(self._look)
        if live.report is None and disk.start == self._disk.start:
            live = self._live
        if (disk.start, live) != (self._disk.start, self._live) and self._live != Live():
            self._on_new_engine()
        self._disk, self._live = disk, live
        engine, contract = self._loaded.endpoint.engine, self._loaded.endpoint.contract
        slides = engine.knobs.get("context-shift") is True
        self.capacity = joined(engine.kind, disk, live, contract.len, slides=slides)
        return self.capacity

    def _look(self) -> tuple[OnDisk, Live]:
        disk, said = OnDisk(), ""
        try:
            disk = on_disk(self._loaded.name, self._installed, self._environ, self._disk)
        except ArchonError as err:
            said = f"{err.code}: {err.message}"
        if said and said != self._said:
            self._trouble(said)
        self._said = said
        return disk, live_of(self._loaded.endpoint)
