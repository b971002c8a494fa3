"""After a stop: nothing of the old engine is left that the new one would stumble over."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

from archonctl.errors import HostRefusal
from archonctl.service import procfs
from archonctl.service.unit import UnitState

LIMIT_S = 60.0
STEP_S = 0.1
QUIET_STEPS = 10
"""Card memory counts as released when it has not fallen for so many steps: how much of it others hold is not known."""

_ROOTS = ("sys/fs/cgroup", "sys/fs/cgroup/unified", "sys/fs/cgroup/systemd")
_CARD = re.compile(r"card[0-9]+")


def wait_gone(
    unit: str,
    before: UnitState,
    port: int | None,
    *,
    root: Path = Path("/"),
    limit_s: float = LIMIT_S,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Wait until the unit's control group is empty, its port free and card memory still.

    ``before`` is the unit as it was before the stop. Raises HostRefusal ``engine-not-gone`` with what is left.
    """
    end = time.monotonic() + limit_s
    while left := _left(before, port, root):
        if time.monotonic() > end:
            why = f"{limit_s:.0f} s after {unit} was stopped {left}"
            raise HostRefusal("engine-not-gone", why, where=unit, hint="end it, then apply again")
        sleep(STEP_S)
    _settle(root, end, sleep)


def _left(before: UnitState, port: int | None, root: Path) -> str:
    pids = group_pids(before.control_group, root)
    if pids:
        return f"its processes {', '.join(map(str, pids[:8]))} still run"
    holders = procfs.listeners(port, root / "proc") if port else []
    return f"port {port} is still held by {' and '.join(map(str, holders))}" if holders else ""


def group_pids(control_group: str, root: Path = Path("/")) -> list[int]:
    """The live processes of a control group and those below it."""
    if not control_group.strip("/"):
        return []
    found: set[int] = set()
    for base in _ROOTS:
        for file in (root / base / control_group.lstrip("/")).rglob("cgroup.procs"):
            try:
                found.update(int(word) for word in file.read_text().split())
            except (OSError, ValueError):  # it went away while it was looked at
                continue
    return sorted(pid for pid in found if pid)


def card_used_bytes(root: Path = Path("/")) -> dict[str, int]:
    """Memory in use by card and kind, where the amdgpu driver tells it (``device/mem_info_vram_used``)."""
    found: dict[str, int] = {}
    for card in sorted((root / "sys/class/drm").glob("card*")):
        if not _CARD.fullmatch(card.name):
            continue
        for kind in ("vram", "gtt"):
            try:
                found[f"{card.name} {kind}"] = int((card / f"device/mem_info_{kind}_used").read_text())
            except (OSError, ValueError):
                continue
    return found


def _settle(root: Path, end: float, sleep: Callable[[float], None]) -> None:
    """Wait while card memory falls. The driver gives it back a little after the process is gone."""
    used = card_used_bytes(root)
    quiet = 0
    while used and quiet < QUIET_STEPS and time.monotonic() < end:
        sleep(STEP_S)
        now = card_used_bytes(root)
        fell = any(now.get(name, 0) < bytes_ for name, bytes_ in used.items())
        used, quiet = now, 0 if fell else quiet + 1
