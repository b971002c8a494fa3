"""The verdict on an installed endpoint: what ``ExecStartPost=`` of ``archon@.service`` waits for.

As root, everything that reads what the engine wrote or answers runs apart, without privileges; root itself only
writes down the verdict. Before it: did the engine of this very start survive its boot, and is it the one that
listens?
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, Protocol, get_args

from archonctl import __version__
from archonctl.engines import adapter
from archonctl.errors import ArchonError, HostRefusal, NoEvidence
from archonctl.ledger.as_json import ledger_json
from archonctl.ledger.reader import LedgerReader
from archonctl.ledger.refusal import refusal
from archonctl.ledger.values import BootLedger
from archonctl.probe.address import speaks_tls
from archonctl.probe.identity import Process
from archonctl.probe.run import probe_endpoint
from archonctl.probe.stored import evidence, kept_lines
from archonctl.probe.values import Depth, Extras, Leg, Progress, Verdict
from archonctl.probe.verdict import verdict_json
from archonctl.release.load import StoredRelease, load_release
from archonctl.release.store import CURRENT, DIGEST_CHARS
from archonctl.release.unit import is_final_refusal
from archonctl.service import procfs
from archonctl.service.events import Event, OnEvent, Phase
from archonctl.service.follow import EngineExited, Limits, check_listener, follow, http_health
from archonctl.service.identity import add_identity, look_at_unit
from archonctl.service.journal import JournalTail
from archonctl.service.kept_boot import LOG_NAME, fuller, kept_boot
from archonctl.service.locate import locate_in_journal
from archonctl.service.place import Place
from archonctl.service.preflight import connect_host, split_listen
from archonctl.service.separated import Account, Message, Send, account, apart
from archonctl.service.state import EndpointState, atomic_write
from archonctl.service.unit import UnitProcess, UnitState, show, systemctl
from archonctl.service.verdict_store import keep_or_say

SCHEMA = "archonctl.verify/1"
VERIFIER = "archon-verify"
"""The account that reads journals and asks engines."""

Word = Literal["holds", "broken", "no evidence"]
_UP_S = 60.0
"""How long an engine that is up may take to answer whether it is well."""

_MAY_PASS = ("engine-not-ready", "engine-silent")
"""A boot that ran out of time: the next one may not."""

EXIT = {"holds": 0, "broken": 1, "no evidence": 3}


@dataclass(frozen=True, slots=True)
class Verified:
    """The verdict as ``archonctl.verify/1``, and its word."""

    word: Word
    value: Mapping[str, object]

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why it does not hold."""
        found = self.value.get("reasons")
        return tuple(map(str, found)) if isinstance(found, list) else ()

    @property
    def capacity(self) -> str:
        """The KV tokens that the boot log named against the contract's, in words."""
        probe = self.value.get("probe")
        facts = probe["facts"] if isinstance(probe, dict) else {}
        wanted, logged = facts.get("contract_tokens"), facts.get("kv_tokens_logged")
        need = f" of {wanted:,} that the contract needs" if isinstance(wanted, int) else ""
        return f"{logged:,} KV tokens{need}" if isinstance(logged, int) else f"KV tokens not told{need}"


def verify_installed(
    name: str,
    place: Place,
    *,
    depth: Depth = "full",
    deadline: float | None = None,
    when_idle: bool = False,
    on_event: OnEvent,
) -> Verified:
    """Follow the running start of ``archon@NAME.service`` to its verdict, and write that down in ``place.run``.

    ``when_idle``: wait until nobody uses the engine, and give way to others: nothing is written down then, since a look
    that was not taken takes nothing away from the verdict before.

    Raises HostRefusal ``release-missing``, ``release-damaged``, ``verdict-unwritable``, ``helper-died``; NoEvidence
    ``unit-not-running``, ``engine-busy``.
    """
    release = load_release(EndpointState(place.state, name).releases / CURRENT)
    unit = f"archon@{name}.service"
    state = show(unit, user=place.user)
    waits = state.sub.startswith("auto-restart")
    if state.ended or waits or (not state.main_pid and not state.exit_code):
        what = "between two tries" if waits else state.active or "not known to systemd"
        why = f"{unit} is {what}: there is no engine to ask"
        raise NoEvidence("unit-not-running", why, hint=f"systemctl start {unit}")
    with contextlib.suppress(OSError):
        place.refusal(name).unlink(missing_ok=True)
    began = time.monotonic()
    folder = EndpointState(place.state, name).folder
    boot = kept_boot(folder, release.digest[:DIGEST_CHARS], state.invocation) if state.active == "active" else None
    judge = _Judge(release, unit, state, place.user, depth, deadline, when_idle, boot)
    engine = UnitProcess(unit, state, 0.0, user=place.user)

    seen: list[Process] = []

    def hear(message: Message) -> None:
        if message.get("ready") is True:
            if not release.loaded.endpoint.engine.image:
                check_listener(engine, split_listen(release.loaded.endpoint.service.listen)[1])
            seen.append(look_at_unit(release, state, EndpointState(place.state, name).releases / CURRENT))
        if "phase" in message:
            on_event(_event(message))

    try:
        found = apart(_verifier(release), judge.run, hear)
    except HostRefusal as err:
        if err.code != "port-in-use":
            raise
        found = _failed("broken", err)
    if isinstance(gave_way := found.pop("gave_way", None), str):
        raise NoEvidence("engine-busy", gave_way, hint="the verdict that there was stays, and grows older")
    if seen:
        add_identity(found, seen[-1])
    verified, stored = _record(name, place, release, state, depth, found, time.monotonic() - began)
    if trouble := keep_or_say(folder, release.digest[:DIGEST_CHARS], "verify", stored, time.time()):
        on_event(Event("verdict", trouble, time.monotonic() - began))
    if found.get("code") in _MAY_PASS and state.active == "activating":
        # a start that systemd ends by SIGTERM is not tried again, one that was killed is: with a delay and a bound
        words = ["--user"] if place.user else []
        systemctl(*words, "kill", "--kill-who=main", "--signal=SIGKILL", unit)
    return verified


def _verifier(release: StoredRelease) -> Account | None:
    """Root's deputy: it may read the journal, and the key that the engine itself reads."""
    if os.geteuid() != 0:
        return None
    more: list[int] = []
    if key := release.loaded.endpoint.service.api_key_file:
        with contextlib.suppress(OSError):
            more.append(Path(key).stat().st_gid)
    return account(VERIFIER, ("systemd-journal",), [gid for gid in more if gid != 0])


class Say(Protocol):
    """Tells one step or one bit of progress."""

    def __call__(self, phase: Phase, text: str, fraction: float | None = None, *, progress: bool = False) -> None:
        """Tell it."""
        ...


@dataclass
class _Judge:
    """What is done apart: read, ask, judge. Everything it says goes through ``send``."""

    release: StoredRelease
    unit: str
    state: UnitState
    user: bool
    depth: Depth
    deadline: float | None
    when_idle: bool = False
    kept_boot: BootLedger | None = None
    """The boot of this start as an earlier verdict read it."""

    def run(self, send: Send) -> Message:
        """The verdict as a value; an error that is one for people becomes a verdict too."""
        began = time.monotonic()

        def say(phase: Phase, text: str, fraction: float | None = None, *, progress: bool = False) -> None:
            send(asdict(Event(phase, text, time.monotonic() - began, fraction, progress)))

        loaded = self.release.loaded
        reader = LedgerReader(loaded.endpoint.engine.kind, loaded.endpoint.engine.version)
        try:
            boot_s = self._boot(reader, say, send)
        except EngineExited as err:
            return _failed("broken", err, ledger_json(reader.result()), final=_is_final(reader))
        except ArchonError as err:
            return _failed("broken" if err.exit_code == 1 else "no evidence", err)
        ledger, log_name = reader.result(), "the boot log"
        if (then := fuller(ledger, self.kept_boot)) is not None:
            ledger, log_name = then, LOG_NAME
        say("ready", f"answers after {boot_s:.1f} s; asking it for {loaded.endpoint.contract.seqs} full heights")
        verdict = probe_endpoint(
            loaded.endpoint,
            adapter(loaded.endpoint.engine.kind).api,
            ledger,
            legs=self.depth,
            deadline=self.deadline,
            extras=Extras(when_idle=self.when_idle),
            log_name=log_name,
            on_progress=lambda at: say("probe", _progress(at), _share(at), progress=True),
            on_leg=lambda leg: say("probe", _leg(leg)),
        )
        if self.when_idle and (others := _others(verdict)):
            return {"gave_way": others}
        say("verdict", verdict.word)
        code = next((leg.code for leg in verdict.legs if leg.status == "fail" and leg.code), None)
        probe = verdict_json(verdict, loaded.name)
        if then is None:
            probe = locate_in_journal(probe, self.unit, self.state.invocation, user=self.user)
        return {
            "verdict": verdict.word,
            "code": code,
            "reasons": list(verdict.reasons),
            "boot_seconds": round(boot_s, 3),
            "ledger": ledger_json(ledger),
            "probe": probe,
            "kept": kept_lines(ledger, loaded.endpoint),
        }

    def _boot(self, reader: LedgerReader, say: Say, send: Send) -> float:
        """Seconds until it was ready; its log has gone through ``reader`` by then."""
        loaded = self.release.loaded
        engine = UnitProcess(self.unit, self.state, 0.0, user=self.user)
        host, port = split_listen(loaded.endpoint.service.listen)
        path, model_bytes = adapter(loaded.endpoint.engine.kind).api.health, loaded.endpoint.model.bytes
        tls = speaks_tls(loaded.endpoint.service)
        limits = Limits.derive(model_bytes, loaded.endpoint.service.load_timeout_s)
        if self.state.active == "active":
            limits = Limits(_UP_S, _UP_S, _UP_S)  # it was up: one that hangs now is not loading
        log = JournalTail(self.unit, self.state.invocation, Path(os.devnull), user=self.user)
        try:
            boot = follow(
                engine,
                log,
                reader,
                lambda: http_health(connect_host(host), port, path, tls=tls),
                limits,
                model_bytes=model_bytes,
                remarks=lambda: reader.result().remarks,
                is_whole=lambda: reader.result().is_whole,
                where=f"the journal of {self.unit}",
                on_event=lambda event: say(event.phase, event.text, event.fraction, progress=event.progress),
            )
        finally:
            log.close()
        send({"ready": True})
        return boot.seconds


def _others(verdict: Verdict) -> str:
    """Why it gave way, where that alone is why there is no verdict; else empty."""
    busy = [leg.message for leg in verdict.legs if leg.code == "engine-busy" and leg.status == "no evidence"]
    return busy[0] if busy and verdict.word == "no evidence" else ""


def _is_final(reader: LedgerReader) -> bool:
    """True if the log names a refusal that the next start would meet again."""
    cause = refusal(reader.result())
    return cause is not None and is_final_refusal(cause.code)


def _failed(word: Word, err: ArchonError, ledger: Message | None = None, *, final: bool = True) -> Message:
    return {
        "verdict": word,
        "code": err.code,
        "reasons": [str(err)],
        "boot_seconds": None,
        "ledger": ledger,
        "probe": None,
        "final": final,
    }


def _progress(at: Progress) -> str:
    return f"{at.leg}: {at.done_tokens:,} of {at.total_tokens:,} tokens{f', {at.text}' if at.text else ''}"


def _share(at: Progress) -> float | None:
    return at.done_tokens / at.total_tokens if at.total_tokens else None


def _leg(leg: Leg) -> str:
    return f"{leg.id}: {leg.status}: {leg.message}"


def _event(message: Message) -> Event:
    fraction, elapsed = message.get("fraction"), message.get("elapsed_s")
    phase: Phase = next((each for each in get_args(Phase) if each == message.get("phase")), "probe")
    return Event(
        phase,
        str(message.get("text", ""))[:2000],
        float(elapsed) if isinstance(elapsed, int | float) else 0.0,
        float(fraction) if isinstance(fraction, int | float) else None,
        message.get("progress") is True,
    )


def _record(
    name: str, place: Place, release: StoredRelease, state: UnitState, depth: Depth, found: Message, seconds: float
) -> tuple[Verified, Message]:
    """Write the verdict, and the refusal that keeps a restart from trying the same once more; also what to store."""
    word: Word | None = next((each for each in get_args(Word) if each == found.get("verdict")), None)
    if word is None:
        raise HostRefusal("helper-died", "the judge gave no verdict", hint="a defect of archonctl")
    is_final = found.pop("final", True) is True
    kept = found.pop("kept", None)
    value: Message = {
        **found,
        "schema": SCHEMA,
        "endpoint": name,
        "unit": f"archon@{name}.service",
        "release": release.digest,
        "invocation": state.invocation,
        "pid": state.main_pid,
        "boot_id": procfs.boot_id(),
        "at": time.time(),
        "seconds": round(seconds, 3),
        "depth": depth,
    }
    try:
        atomic_write(place.verdict(name), (json.dumps(value, indent=2, sort_keys=True) + "\n").encode(), 0o644)
        if word == "broken" and is_final and state.active == "activating":
            code = str(found.get("code") or "contract-short")
            atomic_write(place.refusal(name), f"refused {state.invocation} {code} final\n".encode(), 0o644)
    except OSError as err:
        where = str(place.verdict(name))
        raise HostRefusal("verdict-unwritable", err.strerror or str(err), where=where) from None
    lines, sound = kept if isinstance(kept, list) and len(kept) == 2 else ([], [])
    stored = evidence(release.loaded.endpoint, name, None, None, by="verify", archonctl=__version__)
    stored |= {key: each for key, each in value.items() if key != "schema"}
    return Verified(word, value), stored | {"ledger_lines": lines, "ledger_lines_suffice_for": sound}
