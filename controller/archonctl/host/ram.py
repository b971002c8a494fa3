"""RAM as the kernel tells it: total, available, huge pages set aside, and what this process may lock."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from archonctl.host.kernel_files import Reader

_CAP_IPC_LOCK = 1 << 14
"""capabilities(7): a process with it locks as much as it likes."""


@dataclass(frozen=True, slots=True)
class Ram:
    """Figures in KiB; None where unknown."""

    total_kib: int | None
    available_kib: int | None
    hugepages_kib: int | None
    memlock_kib: int | Literal["unlimited"] | None


def read_ram(read: Reader) -> Ram:
    """From /proc/meminfo, /sys/kernel/mm/hugepages and /proc/self/limits below the root. Raises nothing."""
    text = read.text("/proc/meminfo", wanted=True)
    total, available = _kib(read, text, "MemTotal", 1024), _kib(read, text, "MemAvailable", 0)
    if total is not None and available is not None and available > total:
        read.refuse("/proc/meminfo", f"MemAvailable {available:,} kB is over MemTotal {total:,} kB")
        available = None
    huge = _hugepages(read)
    if huge is not None and total is not None and huge > total:
        read.refuse("/sys/kernel/mm/hugepages", f"{huge:,} KiB of huge pages in {total:,} KiB of RAM")
        huge = None
    return Ram(total, available, huge, _memlock(read))


def _kib(read: Reader, text: str | None, key: str, least: int) -> int | None:
    """One line of /proc/meminfo (the kernel writes "kB" and means 1024 bytes)."""
    if text is None:
        return None
    line = re.search(rf"^{key}:[ \t]+([0-9]{{1,15}}) kB$", text, re.MULTILINE | re.ASCII)
    if line is None:
        read.note("/proc/meminfo", f"no usable {key} line")
        return None
    if int(line[1]) < least:
        read.refuse("/proc/meminfo", f"{key} is {line[1]} kB, which no machine can run in")
        return None
    return int(line[1])


def _hugepages(read: Reader) -> int | None:
    """The pools of all sizes; None where the kernel has none of their files."""
    folder = "/sys/kernel/mm/hugepages"
    sizes = [name for name in read.names(folder) if re.fullmatch(r"hugepages-[0-9]{1,9}kB", name)]
    pools = [(int(name[10:-2]), read.number(f"{folder}/{name}/nr_hugepages")) for name in sizes]
    known = [size * count for size, count in pools if count is not None]
    return sum(known) if known else None


def _memlock(read: Reader) -> int | Literal["unlimited"] | None:
    """The soft limit of this process (bytes in /proc/self/limits), unless it has CAP_IPC_LOCK."""
    status = re.search(r"^CapEff:\t([0-9a-f]{1,16})$", read.text("/proc/self/status") or "", re.MULTILINE)
    if status and int(status[1], 16) & _CAP_IPC_LOCK:
        return "unlimited"
    return memlock_of(read.text("/proc/self/limits") or "")


def memlock_of(limits: str) -> int | Literal["unlimited"] | None:
    """KiB that the process of this ``/proc/PID/limits`` may lock (its soft limit); None where it does not say."""
    line = re.search(r"^Max locked memory +(unlimited|[0-9]{1,20}) ", limits, re.MULTILINE | re.ASCII)
    if line is None:
        return None
    return "unlimited" if line[1] == "unlimited" else int(line[1]) // 1024
