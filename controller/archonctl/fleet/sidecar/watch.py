"""One verdict a start: waits for an engine, asks it, and forgets what it knew when the engine is another one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from archonctl.engines import adapter
from archonctl.errors import ArchonError
from archonctl.ledger.values import BootLedger
from archonctl.probe.address import speaks_tls
from archonctl.probe.limits import Limits
from archonctl.probe.run import probe_endpoint
from archonctl.probe.values import Depth, Extras, Leg, Verdict
from archonctl.probe.verdict import judge, verdict_json
from archonctl.release.load import StoredRelease
from archonctl.service.follow import LAG_S, Health, http_health
from archonctl.service.preflight import split_listen
from archonctl.service.procfs import listening

Word = Literal["loading", "probing", "holds", "broken", "no evidence"]

EVERY_S = 1.0
AGAIN_S, AGAIN_MOST_S = 30.0, 300.0
"""No evidence is asked for again, with a growing delay: a log that lags, an account without rights yet."""
IDLE_S = 60.0
"""How long a recheck waits for an idle engine, then gives up for ``AGAIN_MOST_S``: meanwhile nobody looks at starts."""


@dataclass(frozen=True, slots=True)
class State:
    """What is known of the start that listens on the sockets ``start``. ``at``: Unix time of the verdict."""

    word: Word
    start: frozenset[int] = frozenset()
    reasons: tuple[str, ...] = ()
    value: Mapping[str, object] | None = None
    ledger: BootLedger | None = None
    at: float | None = None


@dataclass
class Watch:
    """Follows one engine on this network. ``boot`` reads its boot log (raises ArchonError); None: there is none."""

    release: StoredRelease
    boot: Callable[[], BootLedger] | None
    depth: Depth = "full"
    deadline: float | None = None
    recheck_s: float = 86_400.0
    """Seconds after which a verdict that holds is taken again, when nobody uses the engine; 0: never."""
    say: Callable[[str], None] = lambda _text: None
    on_verdict: Callable[[State], None] = lambda _state: None
    _state: State = field(default_factory=lambda: State("loading"))
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _next: float = 0.0
    _delay: float = AGAIN_S

    @property
    def state(self) -> State:
        """What is known now."""
        with self._lock:
            return self._state

    @property
    def port(self) -> int:
        """Where the engine listens."""
        return split_listen(self.release.loaded.endpoint.service.listen)[1]

    def health(self) -> Health:
        """One look at the engine's health path, at most two seconds."""
        endpoint = self.release.loaded.endpoint
        host, port = split_listen(endpoint.service.listen)
        path = adapter(endpoint.engine.kind).api.health
        return http_health(host, port, path, tls=speaks_tls(endpoint.service))

    def ready(self) -> str:
        """Why no traffic should come now; empty where it should: this very start is verified, and it is healthy."""
        state = self.state
        if state.word != "holds":
            return f"{state.word}{': ' if state.reasons else ''}{'; '.join(state.reasons)}"
        if listening(self.port) != state.start:
            return "the engine was started anew, and this start is not verified yet"
        health = self.health()
        return "" if health.word == "ready" else f"{health.word} {health.detail}".strip()

    def run(self, stop: threading.Event) -> None:
        """Until ``stop``."""
        while not stop.is_set():
            self.step()
            stop.wait(EVERY_S)

    def step(self) -> None:
        """Look once; a verdict is taken where one is due."""
        start = listening(self.port)
        if start != self.state.start and self.state.word != "loading":
            self.say("the engine was started anew, or ended: its verdict went with it")
            self._set(State("loading", start))
        if not start or self.health().word != "ready":
            return
        state = self.state
        if state.word == "loading":
            self._next, self._delay = 0.0, AGAIN_S
            self._take(start, self.depth, when_idle=False)
        elif state.word == "no evidence" and time.monotonic() >= self._next:
            self._take(start, self.depth, when_idle=False)
        elif state.word == "holds" and self.recheck_s and time.monotonic() >= self._next:
            self._take(start, "admission", when_idle=True)

    def _take(self, start: frozenset[int], depth: Depth, *, when_idle: bool) -> None:
        before = self.state
        if not when_idle:
            self._set(State("probing", start))
        verdict, ledger = self._asked(before.ledger if when_idle else None, depth, when_idle=when_idle)
        if listening(self.port) != start:
            self._set(State("loading"))
            return
        self._schedule(verdict, when_idle=when_idle)
        if when_idle and verdict.word == "no evidence":
            self.say(f"the recheck came to no verdict: {'; '.join(verdict.reasons)}")
            return  # a look that could not be taken takes nothing away from the verdict before
        value = verdict_json(verdict, self.release.loaded.name)
        self._set(State(verdict.word, start, verdict.reasons, value, ledger, time.time()))
        self.on_verdict(self.state)

    def _schedule(self, verdict: Verdict, *, when_idle: bool) -> None:
        delay_s = self.recheck_s
        if verdict.word == "no evidence":
            delay_s = AGAIN_MOST_S if when_idle else self._delay
            self._delay = min(AGAIN_MOST_S, 2 * self._delay)
        self._next = time.monotonic() + delay_s

    def _asked(self, known: BootLedger | None, depth: Depth, *, when_idle: bool) -> tuple[Verdict, BootLedger | None]:
        endpoint = self.release.loaded.endpoint
        try:
            ledger = known or self._ledger()
            verdict = probe_endpoint(
                endpoint,
                adapter(endpoint.engine.kind).api,
                ledger,
                legs=depth,
                deadline=self.deadline,
                extras=Extras(when_idle=when_idle),
                limits=Limits(patient_s=IDLE_S),
                on_leg=lambda leg: self.say(f"{leg.id}: {leg.status}: {leg.message}"),
            )
        except ArchonError as err:
            return judge([Leg("boot-log", "no evidence", str(err), code=err.code)]), None
        return verdict, ledger

    def _ledger(self) -> BootLedger | None:
        """The boot ledger; a log that lacks something is waited for a little. Raises what ``boot`` raises."""
        if self.boot is None:
            return None
        end = time.monotonic() + LAG_S
        while True:
            ledger = self.boot()
            if ledger.is_whole or time.monotonic() > end:
                return ledger
            time.sleep(0.5)

    def _set(self, state: State) -> None:
        with self._lock:
            self._state = state
