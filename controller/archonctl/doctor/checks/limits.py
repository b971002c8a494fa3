"""RAM and the limits on it: what is available, what may be locked, control groups, shared memory."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from archonctl.doctor.machine import Machine
from archonctl.doctor.values import Result, failed, passed, skipped, unseen, warned
from archonctl.host.ram import memlock_of
from archonctl.memory.interval import MIB

SHM_LEAST_MIB = 1024
"""What NCCL's documentation gives a container (--shm-size=1g, Troubleshooting, Shared memory); the default of
container runtimes, 64 MiB, is too little for ranks that talk through it."""

_SHM_ENGINES = ("vllm", "sglang")
"""Engines whose own documentation asks for shared memory: their workers are processes that talk through it."""
_SIZE = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def ram(machine: Machine) -> tuple[Result, ...]:
    """Available RAM against what the most demanding endpoint here holds at its boot."""
    need, who = machine.most("RAM_NEED_MIB")
    host = machine.known
    if not need:
        have = "" if host.available_mib is None else f"; {host.available_mib:,} of {host.ram_mib or 0:,} MiB available"
        return (skipped(f"no endpoint here is known to hold RAM from its boot on{have}"),)
    if host.ram_mib is None or host.available_mib is None:
        return (unseen(f"/proc/meminfo tells no RAM, and {who} needs {need:,} MiB"),)
    huge = host.hugepages_mib or 0
    if huge and host.ram_mib >= need > host.ram_mib - huge:
        message = f"{huge:,} of {host.ram_mib:,} MiB are set aside as huge pages, and {who} needs {need:,} MiB"
        return (failed("hugepages-reserved", message, "lower vm.nr_hugepages"),)
    if machine.engines and host.available_mib < need <= host.ram_mib:
        running = ", ".join(sorted(machine.engines))
        return (skipped(f"{host.available_mib:,} MiB available while {running} runs; {who} needs {need:,} MiB"),)
    told = f"{host.available_mib:,} MiB available, {who} needs {need:,} MiB"
    if host.available_mib < need:
        fix = "stop what uses the memory" if host.ram_mib >= need else "the machine has too little: lower the host pool"
        return (failed("ram-short", f"{told}: {need - host.available_mib:,} MiB short", fix),)
    return (passed(f"{told}: {host.available_mib - need:,} MiB to spare"),)


def memlock(machine: Machine) -> tuple[Result, ...]:
    """What may be locked: in the unit of an engine that runs, else in this shell. ``archon@.service`` sets infinity."""
    need, who = machine.most("MEMLOCK_NEED_MIB")
    have = machine.known.memlock_mib
    place = "this shell"
    if not need:
        told = "" if have is None else f"; {place} may lock {_mib(have)}"
        return (skipped(f"no endpoint here locks memory{told}"),)
    subject = next(each for each in machine.here if each.name == who)
    spec = subject.command.container if subject.command else None
    if spec is not None and not spec.rootless:
        return (skipped(f"{who} needs {need:,} MiB; root's {spec.runtime} gives its container no limit"),)
    if pids := machine.engines.get(who):
        text = machine.read.text(f"/proc/{min(pids)}/limits")
        kib = memlock_of(text or "")
        have, place = kib // 1024 if isinstance(kib, int) else kib, f"the unit of {who}"
    elif subject.installed:
        return (skipped(f"{who} needs {need:,} MiB; its unit sets LimitMEMLOCK=infinity and is not running"),)
    if have is None:
        return (unseen(f"what {place} may lock cannot be read, and {who} needs {need:,} MiB"),)
    if have == "unlimited" or have >= need:
        return (passed(f"{place} may lock {_mib(have)}, {who} needs {need:,} MiB"),)
    fix = f"ulimit -l unlimited (or memlock in /etc/security/limits.conf); archonctl apply {who} needs neither"
    return (failed("memlock-short", f"{place} may lock {_mib(have)}, {who} needs {need:,} MiB", fix),)


def _mib(value: int | str) -> str:
    return f"{value:,} MiB" if isinstance(value, int) else "without limit"


def cgroup_memory(machine: Machine) -> tuple[Result, ...]:
    """The tightest memory limit of this shell's control groups against the need."""
    limit, ram_mib = machine.known.cgroup_limit_mib, machine.known.ram_mib
    need, who = machine.most("RAM_NEED_MIB")
    if not machine.read.exists("/proc/self/cgroup") or not machine.read.names("/sys/fs/cgroup"):
        return (unseen("/proc/self/cgroup or /sys/fs/cgroup is not there to tell a limit"),)
    if limit is None:
        return (passed(f"no memory limit{f'; the machine has {ram_mib:,} MiB' if ram_mib else ''}"),)
    told = f"{limit:,} MiB allowed" + (f" of {ram_mib:,} MiB RAM" if ram_mib else "")
    if not need:
        return (skipped(f"{told}; no endpoint here is known to hold RAM"),)
    if limit < need:
        fix = "raise MemoryMax= and MemoryHigh= of the unit and its slices, or the container's --memory"
        return (failed("cgroup-limit-short", f"{told}, {who} needs {need:,} MiB: {need - limit:,} MiB short", fix),)
    return (passed(f"{told}, {who} needs {need:,} MiB"),)


def cgroup_version(machine: Machine) -> tuple[Result, ...]:
    """Version 2 alone tells systemd that the kernel killed a worker for memory (OOMPolicy=, systemd.service(5))."""
    lines = (machine.read.text("/proc/self/cgroup") or "").splitlines()
    if not lines:
        return (unseen("/proc/self/cgroup tells no control group"),)
    old = [name for line in lines for name in line.split(":", 2)[1:2] if name and not name.startswith("name=")]
    if not old:
        return (passed("version 2 alone"),)
    memory = "memory" in ",".join(old).split(",")
    message = f"controllers of version 1: {len(old)}{' (memory among them)' if memory else ''}; version 2 is expected"
    fix = "systemd.unified_cgroup_hierarchy=1 on the kernel's command line; needs a reboot"
    return (warned("cgroup-v1", message, fix),)


@dataclass(frozen=True, slots=True)
class Space:
    """A file system, in bytes."""

    total_bytes: int
    free_bytes: int


def shared_memory(machine: Machine) -> tuple[Result, ...]:
    """/dev/shm, for engines whose processes talk through it."""
    try:
        seen = os.statvfs(machine.at("/dev/shm"))
    except OSError:
        return judge_shm(machine, None)
    return judge_shm(machine, Space(seen.f_frsize * seen.f_blocks, seen.f_frsize * seen.f_bavail))


def judge_shm(machine: Machine, space: Space | None) -> tuple[Result, ...]:
    """By size, and by what is left of it; a container with an own one is judged by its declared size."""
    asking = [s for s in machine.here if s.endpoint and s.endpoint.engine.kind in _SHM_ENGINES]
    results = []
    shares = []
    for subject in asking:
        spec = subject.command.container if subject.command else None
        own = re.fullmatch(r"([0-9]+)([kmg])", spec.shm) if spec else None
        if own is None:
            shares.append(subject.name)
        elif (mib := int(own[1]) * _SIZE[own[2]] // MIB) < SHM_LEAST_MIB:
            message = f"{subject.name}: its container gets {mib:,} MiB of /dev/shm, {SHM_LEAST_MIB:,} are wanted"
            results.append(failed("shm-short", message, 'container.shm = "host"'))
        else:
            results.append(passed(f"{subject.name}: its container gets {mib:,} MiB of /dev/shm"))
    told = "" if space is None else f"{space.free_bytes // MIB:,} of {space.total_bytes // MIB:,} MiB are free"
    if not asking:
        return (skipped(f"no endpoint here whose engine uses it{f'; {told}' if told else ''}"),)
    if shares:
        results.append(_judge_host_shm(", ".join(shares), space, told))
    return tuple(results)


def _judge_host_shm(who: str, space: Space | None, told: str) -> Result:
    if space is None:
        fix = "mount -t tmpfs tmpfs /dev/shm"
        return failed("shm-short", f"/dev/shm is not there, and {who} needs {SHM_LEAST_MIB:,} MiB of it", fix)
    if space.free_bytes // MIB >= SHM_LEAST_MIB:
        return passed(f"/dev/shm: {told}, {who} wants {SHM_LEAST_MIB:,} MiB")
    if space.total_bytes // MIB >= SHM_LEAST_MIB:
        fix = "ls -l /dev/shm: files that an engine left behind (vllm_*, nccl-*, psm_*) may be removed once it is gone"
    else:
        fix = "mount -o remount,size=16g /dev/shm; within a container: --ipc=host or --shm-size"
    return failed("shm-short", f"/dev/shm: {told}, {who} wants {SHM_LEAST_MIB:,} MiB", fix)
