"""The journal of an installed unit's start, as people read it: the engine's lines, the checks', and systemd's own."""

from __future__ import annotations

import subprocess

from archonctl.errors import HostRefusal

TAIL_LINES = 20
_ANSWER_S = 20.0


def log_command(
    unit: str, invocation: str, *, lines: int | None = None, follow: bool = False, user: bool = False
) -> list[str]:
    """The journalctl command that shows one start of a unit; all of its starts where the invocation is unknown."""
    words = ["journalctl", "--no-pager", "--quiet", "--output=short-iso"]
    words += [f"--lines={'all' if lines is None else lines}"] if lines is not None or follow else []
    words += ["--follow"] if follow else []
    if not invocation:
        return [*words, f"--{'user-' if user else ''}unit={unit}"]
    # "+" is "or": what its processes wrote, and what systemd wrote about it
    return [*words, f"_SYSTEMD_INVOCATION_ID={invocation}", "+", f"{'USER_' if user else ''}INVOCATION_ID={invocation}"]


def last_lines(unit: str, invocation: str, lines: int = TAIL_LINES, *, user: bool = False) -> tuple[str, ...]:
    """The end of what the processes of one start wrote; empty where the journal does not tell. Raises nothing."""
    if not invocation:
        return ()
    match = [f"_SYSTEMD_{'USER_' if user else ''}UNIT={unit}", f"_SYSTEMD_INVOCATION_ID={invocation}"]
    command = ["journalctl", "--no-pager", "--quiet", "--output=cat", "--all", f"--lines={lines}", *match]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_ANSWER_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return tuple(line[:400] for line in done.stdout.decode("utf-8", "replace").splitlines())


def read_log(command: list[str]) -> list[str]:
    """What journalctl says, as lines. Raises HostRefusal ``journal-unreadable``."""
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    except OSError as err:
        raise HostRefusal("journal-unreadable", f"journalctl: {err.strerror}") from None
    if done.returncode != 0:
        said = done.stderr.decode("utf-8", "replace").strip() or f"exit {done.returncode}"
        hint = "run as root, or as a member of the group systemd-journal"
        raise HostRefusal("journal-unreadable", f"journalctl: {said[:300]}", hint=hint)
    return done.stdout.decode("utf-8", "replace").splitlines()


def follow_log(command: list[str]) -> int:
    """Let journalctl write to this process's own output until somebody ends it; its exit status."""
    try:
        with subprocess.Popen(command, stdin=subprocess.DEVNULL) as journal:
            return journal.wait()
    except OSError as err:
        raise HostRefusal("journal-unreadable", f"journalctl: {err.strerror}") from None
