"""An engine as a systemd unit: written, started, watched and stopped through ``systemctl``.

Only what was written here is ever started or stopped: a unit of the same name from another place is refused.
While a start is being verified a drop-in sets ``Restart=no``, so that an engine which refuses is not tried
again before anybody has looked; once the contract holds, the unit's own restart policy is in force.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from archonctl.errors import HostRefusal
from archonctl.service import procfs
from archonctl.service.exits import ExitStatus
from archonctl.service.state import atomic_write

UNIT_DIR = Path("/run/systemd/system")
"""Gone after a reboot, like what was started; it also is how sd_booted(3) tells that systemd runs."""
_DROP_IN = "90-archonctl-verify.conf"
_PROPERTIES = (
    "ActiveState",
    "SubState",
    "Result",
    "MainPID",
    "ExecMainPID",
    "ExecMainCode",
    "ExecMainStatus",
    "ExecMainStartTimestampMonotonic",
    "InvocationID",
    "ControlGroup",
    "FragmentPath",
    "NRestarts",
    "LoadState",
    "LoadError",
    "DropInPaths",
    "NeedDaemonReload",
    "ActiveEnterTimestampMonotonic",
    "StatusText",
    "UnitFileState",
)
_REEXEC_S = 5.0
_BROKE_OFF = ("disconnected from message bus", "Connection reset", "Connection refused", "Transport endpoint")
"""What sd-bus says while systemd executes itself anew (daemon-reexec, a package upgrade)."""
_CLD_EXITED = 1  # siginfo si_code, sigaction(2)
_SETUP = {
    200: "its working directory",
    203: "executing the program",
    205: "its resource limits",
    216: "its group",
    217: "its user",
    218: "its capabilities",
    226: "its mount namespace",
    228: "its system call filter",
    238: "its state directory",
    243: "its credentials",
}
"""Exit statuses that systemd itself gives before the program runs (systemd.exec(5), Process Exit Codes)."""


def available(unit_dir: Path = UNIT_DIR, uid: int | None = None) -> bool:
    """True if systemd is PID 1 here and this process may manage its units (root)."""
    return unit_dir.is_dir() and (os.geteuid() if uid is None else uid) == 0


@dataclass(frozen=True, slots=True)
class UnitState:
    """What systemd says of a unit. ``main_pid`` is 0 where no main process runs."""

    active: str
    sub: str
    result: str
    main_pid: int
    exit_code: int
    exit_status: int
    started_us: int
    invocation: str
    control_group: str
    fragment: str
    restarts: int
    load: str = ""
    """``loaded``, ``not-found``, ``bad-setting`` and so on; ``load_error`` has the reason in systemd's words."""
    load_error: str = ""
    drop_ins: tuple[str, ...] = ()
    stale: bool = False
    """True if a file of the unit has changed since systemd read it."""
    active_us: int = 0
    """When it became active, on the monotonic clock; 0 if it never did."""
    status_text: str = ""
    file_state: str = ""
    """``enabled``, ``disabled`` and so on: whether it is started at boot."""

    @property
    def ended(self) -> bool:
        """True once it is down; a unit on its way down is not yet, nor is one between two tries.

        From systemd 254 on a unit passes ``failed`` or ``inactive`` before it waits for its next try; its sub-state
        tells (unit-def.c, SERVICE_FAILED_BEFORE_AUTO_RESTART).
        """
        return self.active in ("failed", "inactive") and not self.sub.endswith("-before-auto-restart")


def systemctl(*words: str, timeout_s: float = 60.0) -> str:
    """Run systemctl and return what it prints. Raises HostRefusal ``systemctl-failed`` with its own words."""
    try:
        done = subprocess.run(
            ["systemctl", "--no-ask-password", "--no-pager", *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
        )
    except FileNotFoundError:
        raise HostRefusal("systemctl-failed", "systemctl is not installed") from None
    except subprocess.TimeoutExpired:
        why = f"systemctl {' '.join(words)} did not return in {timeout_s:.0f} s"
        raise HostRefusal("systemctl-failed", why) from None
    if done.returncode != 0:
        said = " ".join(done.stderr.split()) or f"exit {done.returncode}"
        hint = "archonctl up --foreground does without systemd"
        raise HostRefusal("systemctl-failed", f"systemctl {' '.join(words)}: {said[:500]}", hint=hint)
    return done.stdout


def show(unit: str, *, user: bool = False, timeout_s: float = 60.0) -> UnitState:
    """What systemd says of ``unit`` now; ``user``: the user's own manager. Raises HostRefusal ``systemctl-failed``."""
    words = [*(["--user"] if user else []), "show", unit, f"--property={','.join(_PROPERTIES)}"]
    text = _asked(*words, timeout_s=timeout_s)
    got = dict(line.partition("=")[::2] for line in text.splitlines())

    def number(name: str) -> int:
        value = got.get(name, "")
        return int(value) if value.isdigit() else 0

    return UnitState(
        got.get("ActiveState", ""),
        got.get("SubState", ""),
        got.get("Result", ""),
        number("MainPID"),
        number("ExecMainCode"),
        number("ExecMainStatus"),
        number("ExecMainStartTimestampMonotonic"),
        got.get("InvocationID", ""),
        got.get("ControlGroup", ""),
        got.get("FragmentPath", ""),
        number("NRestarts"),
        got.get("LoadState", ""),
        got.get("LoadError", ""),
        tuple(got.get("DropInPaths", "").split()),
        got.get("NeedDaemonReload") == "yes",
        number("ActiveEnterTimestampMonotonic"),
        got.get("StatusText", ""),
        got.get("UnitFileState", ""),
    )


def _asked(*words: str, timeout_s: float) -> str:
    """``systemctl``, asked again for a moment where the connection broke off: process 1 may just be starting anew."""
    end = time.monotonic() + _REEXEC_S
    while True:
        try:
            return systemctl(*words, timeout_s=timeout_s)
        except HostRefusal as err:
            if time.monotonic() > end or not any(each in err.message for each in _BROKE_OFF):
                raise
            time.sleep(0.2)


def exit_of(state: UnitState) -> ExitStatus:
    """How a unit ended, from systemd's bookkeeping."""
    oom = "systemd says Result=oom-kill" if state.result == "oom-kill" else ""
    if state.started_us == 0:
        return ExitStatus(None, None, "", f"the unit failed before its program ran (Result={state.result})")
    if state.exit_code == _CLD_EXITED and state.exit_status in _SETUP:
        why = f"systemd could not set it up: status {state.exit_status}, {_SETUP[state.exit_status]}"
        return ExitStatus(None, None, "", why)
    if state.exit_code == _CLD_EXITED:
        return ExitStatus(state.exit_status, None, oom)
    return ExitStatus(None, state.exit_status or None, oom)


class UnitProcess:
    """One start of a unit; see ``follow.Watched``."""

    def __init__(self, unit: str, state: UnitState, grace_s: float, *, user: bool = False) -> None:
        self.unit = unit
        self._user = user
        self.invocation = state.invocation
        self.pid = state.main_pid
        self.start: procfs.Identity | None = procfs.identity(state.main_pid) if state.main_pid else None
        self._control_group = state.control_group
        self._grace_s = grace_s
        self._status: ExitStatus | None = None
        self._looked = 0.0
        self._gone = False

    @classmethod
    def launch(cls, unit: str, text: str, *, grace_s: float = 90.0, unit_dir: Path = UNIT_DIR) -> UnitProcess:
        """Write the unit, and start it without waiting for it to be up.

        Raises HostRefusal ``unit-exists`` if the name is taken from another place or is running, ``unit-unwritable``
        and ``systemctl-failed``.
        """
        place = unit_dir / unit
        before = show(unit)
        if before.fragment not in ("", str(place)):
            raise _taken(unit, before)
        if not before.ended:
            why = f"{unit} is {before.active} already (pid {before.main_pid})"
            raise HostRefusal("unit-exists", why, hint=f"systemctl stop {unit}")
        try:
            atomic_write(place, text.encode(), 0o644)
            (unit_dir / f"{unit}.d").mkdir(exist_ok=True)
            atomic_write(unit_dir / f"{unit}.d" / _DROP_IN, b"[Service]\nRestart=no\n", 0o644)
        except OSError as err:
            raise HostRefusal("unit-unwritable", err.strerror or str(err), where=str(place)) from None
        try:
            systemctl("daemon-reload")
            if (found := show(unit)).fragment != str(place):
                raise _taken(unit, found)
            with contextlib.suppress(HostRefusal):  # "not loaded" where there is nothing to reset
                systemctl("reset-failed", unit)
            systemctl("start", "--no-block", unit)
            return cls(unit, _started(unit, before.invocation), grace_s)
        except BaseException:
            with contextlib.suppress(HostRefusal):
                systemctl("stop", unit)
            remove(unit, unit_dir)
            raise

    def poll(self) -> ExitStatus | None:
        """See ``follow.Watched``; asks systemd at most ten times a second."""
        if self._status is not None or time.monotonic() - self._looked < 0.1:
            return self._status
        state = show(self.unit, user=self._user)
        self._looked = time.monotonic()
        if not self.invocation:
            self.invocation = state.invocation
        if state.main_pid and self.pid != state.main_pid and state.invocation == self.invocation:
            self.pid, self.start = state.main_pid, procfs.identity(state.main_pid)
        self._control_group = state.control_group or self._control_group
        if state.invocation != self.invocation:
            self._status = ExitStatus(None, None, "", "systemd has started it anew")
        elif state.invocation and (state.ended or (state.exit_code and not state.main_pid)):
            self._status = exit_of(state)
        return self._status

    def pids(self) -> list[int]:
        """The processes of the unit's control group that can be seen, or of the main process's tree."""
        group = self._control_group
        found: list[int] = []
        for root in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/systemd"):
            if not group:
                break
            for file in Path(f"{root}{group}").rglob("cgroup.procs"):
                with contextlib.suppress(OSError, ValueError):
                    found += [int(word) for word in file.read_text().split()]
            if found:
                return sorted(set(found))
        return procfs.tree(self.pid) if self.pid else []

    def owns(self, pid: int) -> bool:
        """True if ``pid`` runs in the unit."""
        return pid in self.pids()

    def hurry(self) -> None:
        """SIGKILL to all of it. Safe to call from a signal handler, also while ``stop`` waits."""
        with contextlib.suppress(HostRefusal):
            systemctl("kill", "--signal=SIGKILL", self.unit, timeout_s=10)

    def stop(self) -> ExitStatus:
        """Stop the unit and take its definition away. May be called again. Raises HostRefusal ``systemctl-failed``."""
        if self._gone:
            return self._status or ExitStatus(None, None)
        self._status = self.poll() or ExitStatus(None, None, "", "stopped through systemd")
        systemctl("stop", self.unit, timeout_s=self._grace_s + 30)
        remove(self.unit)
        self._gone = True
        return self._status

    def settle(self) -> None:
        """The contract holds: give the unit its own restart policy. Raises HostRefusal ``systemctl-failed``."""
        _without_drop_in(self.unit, UNIT_DIR)
        systemctl("daemon-reload")


def _taken(unit: str, state: UnitState) -> HostRefusal:
    why = f"{unit} is already defined in {state.fragment or 'no file'}, which is not ours"
    return HostRefusal("unit-exists", why, where=state.fragment, hint=f"systemctl start {unit}, or remove it")


def _started(unit: str, old_invocation: str, limit_s: float = 30.0) -> UnitState:
    """Wait until systemd took up the start job: the unit has a new invocation id then."""
    end = time.monotonic() + limit_s
    while (state := show(unit)).invocation in ("", old_invocation):
        if time.monotonic() > end:
            raise HostRefusal("systemctl-failed", f"the start job of {unit} did not begin in {limit_s:.0f} s")
        time.sleep(0.02)
    return state


def _without_drop_in(unit: str, unit_dir: Path) -> None:
    folder = unit_dir / f"{unit}.d"
    (folder / _DROP_IN).unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # not empty: somebody else's drop-ins are there
        folder.rmdir()


def remove(unit: str, unit_dir: Path = UNIT_DIR) -> None:
    """Take away a unit's definition and whatever is remembered of its failure."""
    _without_drop_in(unit, unit_dir)
    (unit_dir / unit).unlink(missing_ok=True)
    with contextlib.suppress(HostRefusal):
        systemctl("reset-failed", unit)
    with contextlib.suppress(HostRefusal):
        systemctl("daemon-reload")
