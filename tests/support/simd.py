"""A stand-in for systemd and for an endpoint's engine whose state is on disk, so that it outlives who asks it.

An engine that is started "runs" the release that is current at that moment, with the drop-in that was read last.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from archonctl.deployment.load import LoadedEndpoint
from archonctl.deployment.schema import Contract, Endpoint, Engine, ModelRef, Service
from archonctl.engines.base import CommandLine, Forecast, Lever
from archonctl.errors import HostRefusal
from archonctl.plan.values import Plan, PlanVerdict
from archonctl.probe.values import Depth
from archonctl.release.load import StoredRelease
from archonctl.release.render import render_release
from archonctl.release.store import DIGEST_CHARS
from archonctl.release.values import Release
from archonctl.service.apply import apply, rollback
from archonctl.service.carry import ApplyOptions, ApplyResult
from archonctl.service.dbus import Job, JobVerb
from archonctl.service.events import Event, Say
from archonctl.service.installed import Installed, argv_of
from archonctl.service.preview import ApplyRooms, Preview
from archonctl.service.turn import Hands, Judged
from archonctl.service.unit import UnitState

PID = 4242
NAME = "tiny"


@dataclass
class SimJob:
    """A job that is done when it is waited for."""

    act: Callable[[], str]

    def wait(self, seconds: float) -> str | None:
        """See ``dbus.Job``."""
        return self.act()


@dataclass
class Simd:
    """systemd with one endpoint's unit; ``root`` is the machine's root folder.

    ``engines`` says what a release's engine does: "holds", "broken", "no evidence", "refuses" (the start job fails).
    ``tick`` is called at every step, as a disk operation is in ``support.kills``.
    """

    root: Path
    engines: Mapping[str, str] = field(default_factory=dict)
    tick: Callable[[], None] = lambda: None
    asked: list[str] = field(default_factory=list)

    @property
    def installed(self) -> Installed:
        """The endpoint's places."""
        return Installed(NAME, self.root)

    def _load(self) -> dict[str, object]:
        try:
            found: dict[str, object] = json.loads((self.root / "simd.json").read_text())
            return found
        except FileNotFoundError:
            return {"active": "inactive", "release": "", "drop_in": None, "starts": 0, "units": {}}

    def _save(self, **changes: object) -> None:
        temporary = self.root / "simd.new"
        temporary.write_text(json.dumps(self._load() | changes))
        _rename(temporary, self.root / "simd.json")

    def reboot(self) -> None:
        """Read the unit files anew and start what is installed, as an enabled unit is at boot."""
        self._save(active="inactive", release="", drop_in=self.installed.placed())
        if self.installed.current():
            self.start()

    # What is asked of systemd

    def show(self, unit: str) -> UnitState:
        """See ``dbus.Systemd``."""
        state = self._load()
        if unit != self.installed.unit:
            units = state["units"]
            assert isinstance(units, dict)
            return _state(str(units.get(unit, "inactive")), 0, "")
        active = str(state["active"])
        return _state(active, PID if active == "active" else 0, f"start-{state['starts']}")

    def dependants(self, unit: str) -> tuple[str, ...]:
        """See ``dbus.Systemd``."""
        units = self._load()["units"]
        assert isinstance(units, dict)
        return tuple(name for name, active in units.items() if active == "active")

    def add_dependant(self, unit: str) -> None:
        """A unit that runs, and is stopped when the endpoint is."""
        units = self._load()["units"]
        assert isinstance(units, dict)
        self._save(units={**units, unit: "active"})

    def reload(self) -> None:
        """See ``dbus.Systemd``."""
        self.tick()
        self._save(drop_in=self.installed.placed())

    def reset_failed(self, unit: str) -> None:
        """See ``dbus.Systemd``."""

    def begin(self, verb: JobVerb, unit: str) -> Job:
        """See ``dbus.Systemd``."""
        self.asked.append(f"{verb} {unit}")
        self.tick()
        if unit != self.installed.unit:
            units = self._load()["units"]
            assert isinstance(units, dict)
            self._save(units={**units, unit: "active"})
            return SimJob(lambda: "done")
        return SimJob(self.start if verb == "start" else self.stop)

    def start(self) -> str:
        """The engine of the current release, unless one runs already."""
        self.tick()
        state = self._load()
        if state["active"] == "active":
            return "done"
        digest = self.installed.current()
        starts = state["starts"]
        assert isinstance(starts, int)
        if self.engines.get(digest, "holds") == "refuses":
            self._save(active="failed", release="", starts=starts + 1)
            return "failed"
        cmdline = self.root / "proc" / str(PID) / "cmdline"
        cmdline.parent.mkdir(parents=True, exist_ok=True)
        argv = argv_of(self.installed.stored(digest))
        cmdline.write_bytes("".join(f"{word}\0" for word in argv).encode())
        self._save(active="active", release=digest, starts=starts + 1, ran_drop_in=state["drop_in"])
        self.tick()
        return "done"

    def stop(self) -> str:
        """No engine, and no dependant either."""
        self.tick()
        units = self._load()["units"]
        assert isinstance(units, dict)
        self._save(active="inactive", release="", units=dict.fromkeys(units, "inactive"))
        self.tick()
        return "done"

    # What runs, for tests

    @property
    def running(self) -> str:
        """The release whose engine runs; empty if none does."""
        return str(self._load()["release"])

    @property
    def ran_with(self) -> str | None:
        """The drop-in that the running engine was started with."""
        found = self._load().get("ran_drop_in")
        return None if found is None else str(found)

    @property
    def starts(self) -> int:
        """How often an engine was started."""
        found = self._load()["starts"]
        assert isinstance(found, int)
        return found

    def unit(self, name: str) -> str:
        """The state of a dependant."""
        units = self._load()["units"]
        assert isinstance(units, dict)
        return str(units[name])

    def hands(self) -> Hands:
        """Hands for ``apply`` over this machine."""

        def judge(installed: Installed, depth: Depth, say: Say) -> Judged:
            self.tick()
            word = self.engines.get(self.running, "holds")
            assert word in ("holds", "broken", "no evidence")
            return Judged(word, () if word == "holds" else (f"it is {word} by decree",), (), depth)  # type: ignore[arg-type]

        def gone(release: StoredRelease | None, before: UnitState) -> None:
            if self.running:
                raise HostRefusal("engine-not-gone", "it still runs")

        return Hands(
            self,
            lambda *_: None,
            judge,
            gone,
            lambda unit, invocation: ("its last line",),
            lambda installed, release: {"kernel": "6.1"},
        )


def _rename(source: Path, target: Path) -> None:
    source.replace(target)


def _state(active: str, pid: int, invocation: str) -> UnitState:
    return UnitState(active, active, "success", pid, 1, 0, 1, invocation, "/x", "/etc/x", 0, "loaded")


def endpoint(word: str, *, seqs: int = 1) -> LoadedEndpoint:
    """A declaration that differs from another by one word of its command line."""
    value = Endpoint(
        contract=Contract(seqs=seqs, len=1024),
        engine=Engine(kind="llamacpp", binary="/bin/engine", env={"WORD": word}),
        model=ModelRef(path="/m.gguf"),
        service=Service(listen="127.0.0.1:18200", load_timeout_s=60),
    )
    return LoadedEndpoint(value, NAME, Path("/etc/archon/tiny.toml"), Path("/etc"))


def render(loaded: LoadedEndpoint, home: Path, _plan: Plan | None = None) -> Release:
    """Its release: a small one, with the word in argv, environment and drop-in."""
    word = loaded.endpoint.engine.env["WORD"]
    loaded = LoadedEndpoint(
        loaded.endpoint.model_copy(
            update={"service": Service(listen="127.0.0.1:18200", load_timeout_s=60 + len(word), user="archon")}
        ),
        loaded.name,
        loaded.path,
        loaded.base_dir,
    )
    return render_release(loaded, CommandLine(("/bin/engine", "--word", word), {"WORD": word}), home=home)


def digest_of(word: str, root: Path) -> str:
    """The digest of the release of ``endpoint(word)``."""
    return render(endpoint(word), Installed(NAME, root).home).digest[:DIGEST_CHARS]


def rooms(plan: PlanVerdict = "holds", check: Callable[[], None] = lambda: None) -> ApplyRooms:
    """Rooms that judge by decree."""

    def make_plan(loaded: LoadedEndpoint) -> Plan:
        reasons = ("512 tokens, 1,024 wanted: 512 short",) if plan == "short" else ()
        forecast = Forecast("fake", None, None, None, (), (), (Lever("set len to 512", {"contract.len": 512}),))
        return Plan(loaded.name, "llamacpp", "", loaded.endpoint.contract, plan, reasons, forecast, (), ())

    def checked(*_: object) -> tuple[str, ...]:
        check()
        return ()

    return ApplyRooms(make_plan, lambda _loaded: (), render, checked, lambda _folder: ())


def yes(_seen: Preview) -> None:
    """Confirms."""


def do_apply(
    simd: Simd, word: str, *, events: list[Event] | None = None, chosen: ApplyRooms | None = None, **options: object
) -> ApplyResult:
    """``apply`` the release of ``word`` on this machine."""
    return apply(
        endpoint(word),
        ApplyOptions(**options),  # type: ignore[arg-type]
        installed=simd.installed,
        rooms=chosen or rooms(),
        hands=simd.hands(),
        confirm=yes,
        on_event=(events if events is not None else []).append,
    )


def do_rollback(simd: Simd, wanted: str = "", **options: object) -> ApplyResult:
    """``rollback`` on this machine."""
    return rollback(
        simd.installed,
        wanted,
        ApplyOptions(**options),  # type: ignore[arg-type]
        rooms=rooms(),
        hands=simd.hands(),
        confirm=yes,
    )


def machine(tmp_path: Path, **engines: str) -> Simd:
    """A machine with nothing installed; ``engines`` maps words to what their engines do."""
    tmp_path.mkdir(parents=True, exist_ok=True)
    return Simd(tmp_path, {digest_of(word, tmp_path): what for word, what in engines.items()})
