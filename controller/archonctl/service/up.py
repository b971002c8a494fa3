"""``archonctl up``: from a declaration to a verdict, and an engine that runs only if it deserves to.

The order is plan, checks, release, start, boot log, ledger, probe, verdict. What happens to the engine then:

* the verdict is "holds": it is left running, as a systemd unit, or detached, or as a child that this process
  goes on supervising until it dies or a signal comes;
* anything else: it is stopped, unless ``keep`` says to leave it; an endpoint that breaks its promise is worse
  than one that is down, because short requests still work;
* ``once``: it is stopped in any case.

Whatever else happens on the way (an error, Ctrl-C, SIGTERM, SIGHUP), everything that was started is stopped, and
nothing else is touched. A second signal cuts the grace short. If this very process is killed, the guard of a
child stops it; a unit stays with systemd, without restarts, and the next ``up`` says that it is there.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from archonctl import __version__
from archonctl.deployment.load import LoadedEndpoint
from archonctl.errors import GateRefusal, HostRefusal, UsageError
from archonctl.ledger.values import BootLedger
from archonctl.plan.values import Plan
from archonctl.probe.address import speaks_tls
from archonctl.probe.identity import judge_identity
from archonctl.probe.stored import evidence
from archonctl.probe.values import Verdict
from archonctl.probe.verdict import verdict_json, with_leg
from archonctl.service.events import Event, OnEvent, Phase, ignore
from archonctl.service.exits import ExitStatus
from archonctl.service.follow import Boot, Limits, check_listener, follow, http_health
from archonctl.service.identity import look
from archonctl.service.interrupts import Interrupted, Interrupts
from archonctl.service.launcher import Engine, close_log, log_of, mode_of, record, start_engine
from archonctl.service.locate import locate_in_file
from archonctl.service.logtail import LogSource
from archonctl.service.lookup import find_running
from archonctl.service.preflight import connect_host, split_listen
from archonctl.service.process import EngineProcess
from archonctl.service.state import EndpointState, Mode, state_dir
from archonctl.service.unit import UnitProcess, show
from archonctl.service.values import OnVerdict, Options, Prepared, Rooms, UpResult
from archonctl.service.verdict_store import keep_or_say


def up(
    loaded: LoadedEndpoint,
    options: Options,
    *,
    rooms: Rooms,
    environ: Mapping[str, str],
    on_event: OnEvent = ignore,
    on_verdict: OnVerdict | None = None,
) -> UpResult:
    """Start one endpoint and verify it; see the module for what becomes of the engine.

    Installs handlers for SIGINT, SIGTERM and SIGHUP while it works (in the main thread). ``on_verdict`` is called
    once, before the engine is supervised or stopped.

    Raises UsageError ``once-and-keep``; HostRefusal ``already-running``, ``up-in-progress`` and those of the checks;
    GateRefusal ``contract-short``; EngineExited, EngineNotReady (see ``follow``); Interrupted if a signal came
    before the verdict. Nothing runs then that was started here.
    """
    if options.once and options.keep:
        raise UsageError("once-and-keep", "--once stops the engine and --keep leaves it", hint="choose one")
    address = split_listen(loaded.endpoint.service.listen)
    mode = mode_of(options.run_as)
    state = EndpointState(state_dir(environ), loaded.name)
    refuse_second(state)
    with Interrupts() as interrupts, state.lock():
        refuse_second(state)
        start = _Start(loaded, options, rooms, environ, on_event, interrupts, state, mode, address)
        try:
            try:
                return start.run(on_verdict)
            finally:
                start.clean_up()
        finally:
            start.clean_up()  # again: a signal may have struck between "finally" and the shield; it strikes once


def refuse_second(state: EndpointState) -> None:
    """Raises HostRefusal ``already-running`` if the endpoint has an engine."""
    found = find_running(state)
    if found is not None:
        what = f"unit {found.unit}" if found.unit else f"pid {found.pid}"
        raise HostRefusal(
            "already-running",
            f"{state.endpoint} runs already ({what}, {found.host}:{found.port}, from {found.declaration})",
            hint=f"archonctl probe {state.endpoint}, or archonctl stop {state.endpoint} first",
        )


@dataclass
class _Start:
    """One run of ``up``."""

    loaded: LoadedEndpoint
    options: Options
    rooms: Rooms
    environ: Mapping[str, str]
    on_event: OnEvent
    interrupts: Interrupts
    state: EndpointState
    mode: Mode
    address: tuple[str, int]
    began: float = field(default_factory=time.monotonic)
    engine: Engine | None = None
    log: LogSource | None = None
    left: bool = False
    """True once the engine is left running on purpose."""

    def say(self, phase: Phase, text: str, fraction: float | None = None, *, progress: bool = False) -> None:
        self.on_event(Event(phase, text, time.monotonic() - self.began, fraction, progress))

    def run(self, on_verdict: OnVerdict | None) -> UpResult:
        plan = self.plan()
        self.say("preflight", "checking the program, the port and the model file")
        model_bytes = self.rooms.check(self.loaded)
        prepared = self.rooms.prepare(self.loaded, self.state.releases)
        self.say("render", prepared.folder)
        engine = self.start(prepared)
        boot, ledger = self.boot(engine, model_bytes)
        running = record(self.state, engine, prepared, self.loaded, self.mode, self.address)
        verdict = self.probe(engine, ledger, prepared)
        self.keep(prepared, boot, ledger, verdict)
        result = UpResult(self.loaded.name, plan, prepared.folder, running, boot, ledger, verdict, "running")
        if on_verdict is not None:
            on_verdict(result)
        return self.finish(engine, result)

    def clean_up(self) -> None:
        """Stop what was started and is not left on purpose. May be called again."""
        self.interrupts.shield()
        close_log(self.log)
        self.log = None
        if self.engine is not None and not self.left:
            self.end(self.engine)

    def plan(self) -> Plan:
        """Judge before anything is touched. Raises GateRefusal ``contract-short``, or the code of what is wrong."""
        plan = self.rooms.plan(self.loaded)
        reasons = "; ".join(plan.reasons)
        if plan.verdict == "short" and not self.options.force:
            levers = plan.forecast.levers
            hint = f"{levers[0].text}; or start it all the same with --force" if levers else "see archonctl plan"
            code = next((problem.code for problem in plan.forecast.problems), "contract-short")
            raise GateRefusal(code, reasons, where=str(self.loaded.path), hint=hint)
        forced = ", started all the same (--force)" if plan.verdict == "short" else ""
        self.say("plan", f"{plan.verdict}{f': {reasons}' if reasons else ''}{forced}")
        return plan

    def start(self, prepared: Prepared) -> Engine:
        with self.interrupts.held():
            self.engine = engine = start_engine(
                self.loaded, prepared, self.mode, self.state.log, self.options.grace_s, self.environ
            )
            self.interrupts.hurry = engine.hurry
        self.log = log_of(engine, self.state.log)
        if isinstance(engine, UnitProcess):
            self.say("start", f"unit {engine.unit}")
        else:
            self.say("start", f"pid {engine.pid}, log {self.state.log}")
        return engine

    def boot(self, engine: Engine, model_bytes: int | None) -> tuple[Boot, BootLedger]:
        """Follow until ready; the ledger of what was said on the way."""
        assert self.log is not None
        reader = self.rooms.reader(self.loaded)
        path, host, port = self.rooms.health_path(self.loaded), connect_host(self.address[0]), self.address[1]
        tls = speaks_tls(self.loaded.endpoint.service)
        boot = follow(
            engine,
            self.log,
            reader,
            lambda: http_health(host, port, path, tls=tls),
            Limits.derive(model_bytes, self.loaded.endpoint.service.load_timeout_s),
            model_bytes=model_bytes,
            remarks=lambda: reader.result().remarks,
            is_whole=lambda: reader.result().is_whole,
            where=str(self.state.log),
            on_event=self.on_event,
            began=self.began,
        )
        if not self.loaded.endpoint.engine.image:  # a container's port may be held by the container manager
            check_listener(engine, port)
        self.say("ready", f"answers on {host}:{port} after {boot.seconds:.1f} s")
        ledger = reader.result()
        self.say("ledger", ledger_line(ledger, boot))
        return boot, ledger

    def probe(self, engine: Engine, ledger: BootLedger, prepared: Prepared) -> Verdict:
        """Ask the engine itself; one that died meanwhile does not hold, whatever was answered before."""
        self.say("probe", "asking the engine")
        group = show(engine.unit).control_group if isinstance(engine, UnitProcess) else ""
        endpoint, port = self.loaded.endpoint, self.address[1]
        who = judge_identity(look(endpoint, prepared.argv, port, engine.pid, control_group=group), ledger)
        with self.interrupts.for_asyncio():
            verdict = self.rooms.probe(self.loaded, ledger, lambda text, f: self.say("probe", text, f, progress=True))
        verdict = with_leg(verdict, who)
        status = engine.poll()
        if status is not None:
            reason = f"the engine ended while it was probed: {status.words}"
            verdict = replace(verdict, word="broken", reasons=(reason, *verdict.reasons))
        self.say("verdict", verdict.word)
        return verdict

    def keep(self, prepared: Prepared, boot: Boot, ledger: BootLedger, verdict: Verdict) -> None:
        """Store the verdict with what it was reached from; that it cannot be stored does not change it."""
        probe = locate_in_file(verdict_json(verdict, self.loaded.name), self.state.log)
        release, at = Path(prepared.folder).name, time.time()
        value = evidence(
            self.loaded.endpoint,
            self.loaded.name,
            probe,
            ledger,
            verdict=verdict.word,
            reasons=list(verdict.reasons),
            release=release,
            by="up",
            at=at,
            depth=str(verdict.facts.get("depth") or "") or None,
            boot_seconds=round(boot.seconds, 3),
            archonctl=__version__,
        )
        if trouble := keep_or_say(self.state.folder, release, "up", value, at):
            self.say("verdict", trouble)

    def finish(self, engine: Engine, result: UpResult) -> UpResult:
        """Leave it, stop it, or stay with it."""
        status = engine.poll()
        if status is not None:
            return replace(result, ended="died", exit=status)
        stays = not self.options.once and (result.verdict.word == "holds" or self.options.keep)
        if stays and isinstance(engine, EngineProcess) and self.mode == "child":
            return self.supervise(engine, result)
        self.interrupts.shield()
        if not stays:
            return replace(result, ended="stopped", exit=self.end(engine))
        if isinstance(engine, UnitProcess):
            engine.settle()
        else:
            engine.release()
        self.left = True
        return result

    def supervise(self, engine: EngineProcess, result: UpResult) -> UpResult:
        """Stay until the engine dies or a signal comes."""
        try:
            self.say("serve", f"serving on {self.address[0]}:{self.address[1]}; Ctrl-C stops it")
            while (status := engine.wait(3600.0)) is None:
                pass
        except Interrupted as signal:
            self.interrupts.shield()
            return replace(result, ended="interrupted", exit=self.end(engine), signal=signal.number)
        return replace(result, ended="died", exit=status)

    def end(self, engine: Engine) -> ExitStatus:
        """Stop what was started, then forget it."""
        try:
            if engine.poll() is None:
                self.say("stop", "stopping the engine")
        finally:
            status = engine.stop()
            self.engine = None
            self.state.clear()
        return status


_SAID = ("kv_tokens", "kv_mib", "kv_gib", "n_slots", "n_ctx_slot", "max_concurrency")
"""The figures that a promise of capacity turns on; the others are in the result."""


def ledger_line(ledger: BootLedger, boot: Boot) -> str:
    """What the boot log said, in one line."""
    readings = {name: ledger.figures[name] for name in _SAID if name in ledger.figures}
    figures = ", ".join(f"{name} {reading.value.best:,.10g}" for name, reading in readings.items())
    missing = f"; not printed: {', '.join(ledger.missing)}" if ledger.missing else ""
    skipped = f"; {boot.skipped_bytes:,} bytes of log were passed over" if boot.skipped_bytes else ""
    return f"{figures or 'no capacity was printed'}, {ledger.lines_read:,} lines read{missing}{skipped}"
