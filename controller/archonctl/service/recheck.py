"""The timer that verifies an endpoint again: whether it is on, and when it ran last."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from archonctl.service.unit import UnitState

RecheckWord = Literal["on", "until reboot", "from next boot", "off"]


@dataclass(frozen=True, slots=True)
class Recheck:
    """``ran_at``: Unix time of the latest run since this boot, None where there was none; ``exit``: how it ended, None
    while it runs. Of archonctl verify: 0 holds, 1 broken, 3 no evidence.
    """

    word: RecheckWord
    ran_at: float | None = None
    exit: int | None = None


def timer_of(name: str) -> str:
    """The timer's unit of an endpoint."""
    return f"archon-verify@{name}.timer"


def recheck(name: str, show: Callable[[str], UnitState]) -> Recheck:
    """Ask systemd by ``show``. Raises HostRefusal ``systemctl-failed``."""
    timer, service = show(timer_of(name)), show(f"archon-verify@{name}.service")
    ran_at = time.time() - (time.monotonic() - service.started_us / 1e6) if service.started_us else None
    ended = service.exit_status if service.exit_code and not service.main_pid else None
    return Recheck(_word(timer), ran_at, ended)


def _word(timer: UnitState) -> RecheckWord:
    enabled, active = timer.file_state in ("enabled", "enabled-runtime", "static"), timer.active == "active"
    if active:
        return "on" if enabled else "until reboot"
    return "from next boot" if enabled else "off"


def how_to(name: str, *, user: bool) -> str:
    """The command that turns it on."""
    return f"systemctl {'--user ' if user else ''}enable --now {timer_of(name)}"
