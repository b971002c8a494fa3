"""The clock: set by somebody, and not grossly wrong (TLS, tokens and the order of a history hang on it)."""

from __future__ import annotations

import ctypes
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from archonctl.doctor.machine import Machine
from archonctl.doctor.values import Result, failed, passed, skipped, unseen, warned

_STA_UNSYNC = 0x0040
"""adjtimex(2): the clock is not synchronised."""
_DAY_S = 86_400
_YEARS_S = 20 * 365 * _DAY_S
"""A clock this far after the files of this very program is as wrong as one before them."""


class _Timex(ctypes.Structure):
    """The beginning of struct timex (adjtimex(2)), with room for the rest."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_byte * 256),
    )


@dataclass(frozen=True, slots=True)
class Clock:
    """Seconds since 1970; None where the kernel does not tell. ``newest_s``: when this program was put here."""

    now_s: float
    newest_s: float
    is_synchronised: bool | None
    error_s: float | None


def clock(machine: Machine) -> tuple[Result, ...]:
    """Of this machine alone: a folder has no clock."""
    if not machine.is_live:
        return (skipped("another machine's files tell no time"),)
    synchronised, error_s = _asked()
    newest = Path(__file__).stat().st_mtime
    return (judge_clock(Clock(time.time(), newest, synchronised, error_s)),)


def _asked() -> tuple[bool | None, float | None]:
    """adjtimex(2) with ``modes`` 0 reads and needs no privilege."""
    value = _Timex()
    try:
        state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(value))
    except (OSError, AttributeError):
        return None, None
    if state < 0:
        return None, None
    return not value.status & _STA_UNSYNC, value.maxerror / 1e6


def judge_clock(seen: Clock) -> Result:
    """Gross errors first."""
    if not seen.newest_s - _DAY_S <= seen.now_s <= seen.newest_s + _YEARS_S:
        message = f"the clock says {_date(seen.now_s)}, and this program was installed on {_date(seen.newest_s)}"
        return failed("clock-wrong", message, "timedatectl set-time, then let chrony or systemd-timesyncd keep it")
    if seen.is_synchronised is None:
        return unseen(f"the clock says {_date(seen.now_s)}; whether it is synchronised the kernel does not tell")
    if not seen.is_synchronised:
        message = f"the clock says {_date(seen.now_s)}, and nothing synchronises it"
        return warned("clock-unsynchronised", message, "timedatectl set-ntp true, or install chrony")
    error = f", at most {seen.error_s:.3f} s off" if seen.error_s is not None else ""
    return passed(f"synchronised{error}")


def _date(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
    except (ValueError, OverflowError, OSError):
        return f"{seconds:.0f} s after 1970"
