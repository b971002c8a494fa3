"""What holds a GPU: processes that have one of its nodes open, and memory that nobody seen here has."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from archonctl.doctor.checks.cards import device_nodes
from archonctl.doctor.machine import Machine
from archonctl.doctor.values import Result, failed, passed, skipped, unseen, warned
from archonctl.release.preflight_file import IDLE_VRAM_MIB
from archonctl.service import procfs

_NODE = re.compile(r"/dev/(kfd|dri/renderD[0-9]+|nvidia[0-9]+|nvidia-uvm)", re.ASCII)
"""As scripts/ttm-preflight.sh has it."""


@dataclass(frozen=True, slots=True)
class Holders:
    """``open_by``: process -> a node that it has open. ``hidden``: processes that this user may not look into.

    ``looked``: processes that could be looked into.
    """

    open_by: dict[int, str]
    hidden: int
    looked: int = 1


def leftovers(machine: Machine) -> tuple[Result, ...]:
    """Everything that holds a card and is no engine of an endpoint."""
    if not device_nodes(machine) and not machine.known.cards:
        return (skipped("no GPU here, so nothing holds one"),)
    return judge_holders(machine, holders(machine))


def holders(machine: Machine) -> Holders:
    """By the links of /proc/PID/fd (proc_pid_fd(5))."""
    found: dict[int, str] = {}
    hidden = looked = 0
    for name in machine.read.names("/proc"):
        if not (name.isascii() and name.isdecimal()) or int(name) == os.getpid():
            continue
        folder = machine.at(f"/proc/{name}/fd")
        try:
            links = os.listdir(folder)  # noqa: PTH208
        except PermissionError:
            hidden += 1
            continue
        except OSError:
            continue
        looked += 1
        targets = (machine.link(f"/proc/{name}/fd/{link}") for link in links)
        if node := next((target for target in targets if _NODE.fullmatch(target)), ""):
            found[int(name)] = node
    return Holders(found, hidden, looked)


def judge_holders(machine: Machine, seen: Holders) -> tuple[Result, ...]:
    """Holders that are no engine of ours, then memory without a holder."""
    strangers = {pid: node for pid, node in seen.open_by.items() if not machine.owner(pid)}
    used = {c.name: c.total_mib - c.free_mib for c in machine.known.cards if c.free_mib is not None and not c.unified}
    full = {name: mib for name, mib in used.items() if mib > IDLE_VRAM_MIB}
    told = ", ".join(f"{name}: {mib:,} MiB in use, at most {IDLE_VRAM_MIB:,} when idle" for name, mib in full.items())
    if strangers:
        return (_held(machine, strangers, f"; {told}" if told else ""),)
    ours = len(seen.open_by)
    if not ours and (full or seen.hidden or not seen.looked):
        return (_unowned(seen, told),)
    return (passed(f"processes that hold a card: {ours} of endpoints, 0 others"),)


def _held(machine: Machine, strangers: dict[int, str], told: str) -> Result:
    who = ", ".join(f"pid {p} ({procfs.command(p, machine.at('/proc'), 60)}) has {n}" for p, n in strangers.items())
    message = f"cards are held by processes of no endpoint ({len(strangers)}): {who}{told}"
    if any(subject.needs.get("SHARED_CARDS") == "yes" for subject in machine.here):
        return passed(f"{message}; the cards are declared to be shared")
    is_wanted = any(subject.wants_cards for subject in machine.here)
    fix = "stop it by what started it, or declare cards_shared in the host profile"
    return (failed if is_wanted else warned)("cards-held", message, fix)


def _unowned(seen: Holders, told: str) -> Result:
    """Nobody who was looked into has a card open, and that is not all there is to say."""
    fix = "as root: sudo archonctl doctor --check leftovers"
    if seen.hidden:
        about = f"{told}; " if told else ""
        return unseen(f"{about}{seen.hidden} processes can be looked into by root only; no other holds a card", fix)
    if not seen.looked:
        return unseen("/proc shows no process that could be looked into")
    return warned("vram-not-released", f"{told}, and no process here has a card open", "a container may hold it")
