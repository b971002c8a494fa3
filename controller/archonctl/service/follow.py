"""Following an engine from its start until it is ready, gone, or out of time.

Ready is what the engine's health path answers (or, where an engine has none, a process of its own listening
on the port): never a line of its log alone. Time-outs come from the size of the model and are extended while
the engine visibly works.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from typing import Literal, Protocol

from archonctl.errors import ContractBroken, HostRefusal, NoEvidence
from archonctl.ledger.refusal import cause
from archonctl.ledger.values import Remark
from archonctl.redact import without_secrets
from archonctl.service import procfs
from archonctl.service.events import Event, OnEvent, ignore
from archonctl.service.exits import ExitStatus
from archonctl.service.logtail import LogSource

TAIL_LINES = 20
DRAIN_S = 30.0
"""A log is waited for so long: on a busy machine the journal lags behind an engine that serves already."""
LAG_S = 5.0
"""An engine that serves may so long have lines in hand that it has not written: llama-server logs from a thread of its
own, and answers /health before that thread has had its turn."""
MIB = 1024 * 1024

HealthWord = Literal["ready", "loading", "refused", "silent"]


@dataclass(frozen=True, slots=True)
class Health:
    """One look at the health path. "refused": nobody listens; "silent": accepted, but no answer in time."""

    word: HealthWord
    detail: str = ""


class Watched(Protocol):
    """An engine that can be followed, wherever it runs."""

    pid: int

    def poll(self) -> ExitStatus | None:
        """How it ended, or None."""
        ...

    def pids(self) -> list[int]:
        """Its live processes."""
        ...

    def owns(self, pid: int) -> bool:
        """True if ``pid`` belongs to it."""
        ...


class LineSink(Protocol):
    """What reads the ledger: ``archonctl.ledger`` gives one."""

    def feed(self, line: str) -> object:
        """Take one line."""
        ...


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a boot may take, in seconds.

    ``expected_s`` is allowed in any case. After it the engine goes on for as long as something moved in the
    last ``stall_s`` (its log, memory or reading), up to ``hard_s``.
    """

    expected_s: float
    stall_s: float
    hard_s: float

    @classmethod
    def derive(cls, model_bytes: int | None, declared_s: int | None = None, read_mib_s: float = 100.0) -> Limits:
        """From the artefact's size and a read speed; a declared time-out is final.

        100 MiB/s is a slow network disk, on purpose: a 114 GiB model then has 1,223 s, and loads of 348 to
        1,940 s are on record for that class. The hard limit is four times as much, for a slower disk that is
        still moving. Without a size, 300 s.
        """
        if declared_s is not None:
            return cls(float(declared_s), float(declared_s), float(declared_s))
        load_s = model_bytes / (read_mib_s * MIB) if model_bytes else 240.0
        expected = 60.0 + load_s
        return cls(expected, 60.0, 4 * expected)


@dataclass(frozen=True, slots=True)
class Boot:
    """A boot that got ready."""

    seconds: float
    lines: int
    skipped_bytes: int
    """Log that was passed over because the engine wrote it faster than it could be read."""


class EngineExited(ContractBroken):
    """The engine ended before it was ready (``engine-exited-at-boot``)."""

    def __init__(
        self, status: ExitStatus, tail: Sequence[str], remarks: Sequence[Remark], where: str, elapsed_s: float
    ) -> None:
        why = cause(remarks)
        named = f"; the log names {why.code}: {why.text}" if why else ""
        last = f"; its last line: {tail[-1]}" if tail and not named else ""
        quiet = "" if tail else "; it printed nothing"
        super().__init__(
            "engine-exited-at-boot",
            f"the engine ended before it was ready: {status.words}{named}{last}{quiet}",
            where=where,
            hint=f"archonctl explain {why.code}" if why else "the log has more",
        )
        self.status = status
        self.elapsed_s = elapsed_s
        self.tail = tuple(tail)
        self.remarks = tuple(remarks)

    def as_dict(self) -> dict[str, str]:
        """With the exit in words, the seconds since the start, and the last lines of the log."""
        more = {"exit": self.status.words, "seconds": f"{self.elapsed_s:.3f}", "log_tail": "\n".join(self.tail)}
        return {**super().as_dict(), **more}


class EngineNotReady(NoEvidence):
    """Time ran out: ``engine-silent`` if the engine never printed a line, else ``engine-not-ready``."""

    def __init__(self, elapsed_s: float, health: Health, tail: Sequence[str], moved_s: float, where: str) -> None:
        code = "engine-not-ready" if tail else "engine-silent"
        said = f"its last line: {tail[-1]}" if tail else "it printed nothing"
        how = {
            "refused": "nobody listens on its port",
            "silent": "its port accepts connections but does not answer",
            "loading": "it answers that it is not ready",
            "ready": "",
        }[health.word]
        detail = f" ({health.detail})" if health.detail else ""
        super().__init__(
            code,
            f"not ready after {elapsed_s:.0f} s, last sign of progress {moved_s:.0f} s ago: {how}{detail}; {said}",
            where=where,
            hint="set service.load_timeout_s if it needs longer",
        )
        self.elapsed_s = elapsed_s
        self.tail = tuple(tail)

    def as_dict(self) -> dict[str, str]:
        """With the seconds that it had and the last lines of the log."""
        return {**super().as_dict(), "seconds": f"{self.elapsed_s:.3f}", "log_tail": "\n".join(self.tail)}


@dataclass
class Tail:
    """Lines on their way to the ledger; remembers the last few."""

    source: LogSource
    sink: LineSink
    lines: int = 0
    last: deque[str] = field(default_factory=lambda: deque(maxlen=TAIL_LINES))

    def pump(self, budget_s: float = 0.2) -> bool:
        """Move what is there, for at most ``budget_s``; True if there was something."""
        until = time.monotonic() + budget_s
        any_line = False
        while lines := self.source.read():
            any_line = True
            for line in lines:
                self.sink.feed(line)
            self.lines += len(lines)
            self.last.extend(_shown(line) for line in lines[-TAIL_LINES:])
            if time.monotonic() > until:
                break
        return any_line

    def drain(self, quiet_s: float, limit_s: float) -> None:
        """Read until nothing new came for ``quiet_s`` and all that was written by then is read.

        After ``limit_s`` pass over all but the end.
        """
        now = quiet_since = time.monotonic()
        end, expecting = now + limit_s, False
        while now < end:
            if self.pump():
                quiet_since = time.monotonic()
            elif not expecting and now - quiet_since >= quiet_s:
                self.source.expect()
                expecting = True
            elif expecting and not self.source.behind:
                return
            else:
                time.sleep(0.02)
            now = time.monotonic()
        self.source.skip_to_end()
        self.pump()

    def wait(self, done: Callable[[], bool], limit_s: float) -> None:
        """Read on until ``done``, for at most ``limit_s``."""
        end = time.monotonic() + limit_s
        while not done() and time.monotonic() < end:
            if not self.pump():
                time.sleep(0.05)

    def tail(self) -> list[str]:
        """The last lines, an unfinished one included."""
        rest = self.source.rest().strip()
        return [*self.last, _shown(rest)][-TAIL_LINES:] if rest else list(self.last)


def _shown(line: str) -> str:
    """What a person may see of a line: its beginning, without what looks like a secret."""
    return without_secrets(line[:1600])[:400]


class Progress:
    """Signs of life of a loading engine: bytes in its log, in memory, and read. None is no sign."""

    def __init__(self, engine: Watched, log: LogSource, model_bytes: int | None) -> None:
        self._engine = engine
        self._log = log
        self._model_bytes = model_bytes
        self._seen = (0, 0, 0)
        self.moved_at = time.monotonic()
        self.usage = procfs.Usage(None, None)

    def sample(self) -> None:
        """Look once. Memory and reads count from 1 MiB up: a waiting process has some of both."""
        self.usage = procfs.usage(self._engine.pids())
        now = (self._log.seen_bytes, (self.usage.rss_bytes or 0) // MIB, (self.usage.read_bytes or 0) // MIB)
        if any(new > old for new, old in zip(now, self._seen, strict=True)):
            self.moved_at = time.monotonic()
        self._seen = now

    @property
    def fraction(self) -> float | None:
        """How much of the model's bytes is in memory or has been read; an estimate that stays below 1.

        None for a model so small that the program itself weighs as much.
        """
        got = max((n for n in (self.usage.rss_bytes, self.usage.read_bytes) if n is not None), default=None)
        if got is None or (self._model_bytes or 0) < 256 * MIB:
            return None
        return min(got / (self._model_bytes or 1), 0.99)


def follow(
    engine: Watched,
    log: LogSource,
    sink: LineSink,
    health: Callable[[], Health],
    limits: Limits,
    *,
    model_bytes: int | None = None,
    remarks: Callable[[], Sequence[Remark]] = tuple,
    is_whole: Callable[[], bool] = lambda: True,
    where: str = "",
    on_event: OnEvent = ignore,
    began: float | None = None,
) -> Boot:
    """Wait until the engine is ready, feeding ``sink`` with every line of its log.

    ``remarks`` gives what the ledger has noticed so far, ``is_whole`` tells that it lacks nothing: until then the log
    of an engine that serves is waited for a little. ``where`` is the log for people, ``began`` a monotonic time that
    the events count from. Raises EngineExited, EngineNotReady.
    """
    tail, progress = Tail(log, sink), Progress(engine, log, model_bytes)
    start = time.monotonic()
    zero = start if began is None else began
    next_sample, last_health = start, Health("refused")
    while True:
        tail.pump()
        status = engine.poll()
        if status is not None:
            tail.drain(0.1, 2.0)
            raise EngineExited(status, tail.tail(), remarks(), where, time.monotonic() - start)
        last_health = health()
        now = time.monotonic()
        if last_health.word == "ready":
            break
        if now >= next_sample:
            next_sample = now + 0.5
            progress.sample()
            on_event(_load_event(tail, progress, now - zero))
        expected_over = now - start > limits.expected_s
        if (expected_over and now - progress.moved_at > limits.stall_s) or now - start > limits.hard_s:
            raise EngineNotReady(now - start, last_health, tail.tail(), now - progress.moved_at, where)
        time.sleep(0.05 if now - start < 2 else 0.2)
    ready_s = time.monotonic() - start
    tail.drain(0.3, DRAIN_S)  # engines write their log from a thread of its own, a little behind
    tail.wait(lambda: is_whole() or engine.poll() is not None, LAG_S)
    return Boot(ready_s, tail.lines, log.skipped_bytes)


def _load_event(tail: Tail, progress: Progress, elapsed_s: float) -> Event:
    last = tail.tail()
    return Event("load", last[-1] if last else "waiting for its first line", elapsed_s, progress.fraction, True)


def http_health(host: str, port: int, path: str, timeout_s: float = 2.0, *, tls: bool = False) -> Health:
    """One GET of the health path, without proxies or redirects. Whose certificate it is does not matter yet."""
    connection = HTTPConnection(host, port, timeout=timeout_s)
    if tls:
        from http.client import HTTPSConnection
        from ssl import _create_unverified_context

        connection = HTTPSConnection(host, port, timeout=timeout_s, context=_create_unverified_context())
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        body = response.read(500).decode("utf-8", "replace").strip()
    except ConnectionError as err:
        return Health("refused", "" if isinstance(err, ConnectionRefusedError) else str(err))
    except TimeoutError:
        return Health("silent", f"no answer to GET {path} in {timeout_s:g} s")
    except (OSError, HTTPException) as err:
        return Health("silent", f"GET {path}: {type(err).__name__} {err}".strip())
    finally:
        connection.close()
    if response.status in (200, 401, 403):  # one that asks for a key serves: the probe has the key
        return Health("ready")
    return Health("loading", f"GET {path} says {response.status} {body[:120]}".strip())


def check_listener(engine: Watched, port: int) -> None:
    """Make sure that it is this engine which answered: a foreign listener on the port would be believed.

    Two processes can listen on one port (SO_REUSEPORT), and the kernel shares connections between them.
    Raises HostRefusal ``port-in-use``. Says nothing where the listeners may not be looked into.
    """
    foreign = [found for found in procfs.listeners(port) if found.pid is not None and not engine.owns(found.pid)]
    if foreign:
        raise HostRefusal(
            "port-in-use",
            f"port {port} is also answered by {foreign[0]}, which is not the engine (pid {engine.pid})",
            hint="stop it, or set service.listen to another port",
        )
