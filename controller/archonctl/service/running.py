"""What a process was really started with, against what a release says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from archonctl.service.procfs import PROC

# What systemd and a login give to every process (systemd.exec(5), Environment Variables in Spawned Processes).
_GIVEN_NAMES = """
    PATH LANG USER LOGNAME HOME SHELL PWD OLDPWD SHLVL TERM INVOCATION_ID XDG_RUNTIME_DIR RUNTIME_DIRECTORY
    STATE_DIRECTORY CACHE_DIRECTORY LOGS_DIRECTORY CONFIGURATION_DIRECTORY CREDENTIALS_DIRECTORY MAINPID MANAGERPID
    LISTEN_FDS LISTEN_PID LISTEN_FDNAMES NOTIFY_SOCKET WATCHDOG_PID WATCHDOG_USEC SYSTEMD_EXEC_PID JOURNAL_STREAM
    MEMORY_PRESSURE_WATCH MEMORY_PRESSURE_WRITE REMOTE_ADDR REMOTE_PORT SERVICE_RESULT EXIT_CODE EXIT_STATUS TMPDIR _
"""
_SESSION_NAMES = "DBUS_SESSION_BUS_ADDRESS DISPLAY WAYLAND_DISPLAY XAUTHORITY SSH_AUTH_SOCK DESKTOP_SESSION GPG_TTY"
"""What a person's login gives to her own service manager on top (pam_systemd(8), environment.d(5), desktops)."""
_GIVEN = frozenset((*_GIVEN_NAMES.split(), *_SESSION_NAMES.split()))
_GIVEN_PREFIXES = ("LC_", "ARCHON_", "MONITOR_", "XDG_", "QT_", "GTK_", "GNOME_", "KDE_")


def cmdline_of(pid: int, proc: Path = PROC) -> tuple[str, ...]:
    """The argv of a process; empty if it is gone or its file is hidden."""
    return _words(proc / str(pid) / "cmdline")


def environ_of(pid: int, proc: Path = PROC) -> dict[str, str] | None:
    """The environment that a process was started with; None where this user may not read it."""
    try:
        raw = (proc / str(pid) / "environ").read_bytes()
    except OSError:
        return None
    words = raw.decode("utf-8", "surrogateescape").split("\0")
    return dict(word.partition("=")[::2] for word in words if "=" in word)


def _words(path: Path) -> tuple[str, ...]:
    try:
        raw = path.read_bytes()
    except OSError:
        return ()
    return tuple(raw.decode("utf-8", "surrogateescape").split("\0")[:-1])


def runs(argv: Sequence[str], pid: int, proc: Path = PROC, known: Sequence[str] = ()) -> bool:
    """True if the process has this argv; a script has its interpreter in front of it (execve(2)).

    ``known`` is another command line that counts: a program that is a wrapper ends in one that only a verified start
    can tell.
    """
    found = cmdline_of(pid, proc)
    return bool(argv) and (found[-len(argv) :] == tuple(argv) or (bool(known) and found == tuple(known)))


def environment_differences(wanted: Mapping[str, str], found: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Variables that differ: name -> (as rendered, as the process has it), "unset" where one of them has none."""
    names = set(wanted) | {n for n in found if n not in _GIVEN and not n.startswith(_GIVEN_PREFIXES)}
    pairs = {name: (wanted.get(name, "unset"), found.get(name, "unset")) for name in sorted(names)}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
