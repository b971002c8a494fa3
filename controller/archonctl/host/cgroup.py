"""The memory limit that this process runs under: its own control group and every one above it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath

from archonctl.host.kernel_files import Reader

_V1_UNLIMITED_BYTES = 1 << 62
"""cgroup v1 writes "no limit" as the largest page count: 0x7ffffffffffff000 with 4 KiB pages."""

_LEAST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """The tightest limit, and what is left under the tightest of them, in bytes; None where there is none or unknown.

    ``free_bytes`` is limit - current + inactive file cache, which the kernel drops before it refuses.
    """

    limit_bytes: int | None = None
    free_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class _Files:
    """What a version of the interface calls its files: docs.kernel.org admin-guide/cgroup-v2 and cgroup-v1/memory."""

    limits: tuple[str, ...]
    usage: str
    cache: str


_V2 = _Files(("memory.max", "memory.high"), "memory.current", "inactive_file")
"""Over memory.high a group is throttled until nothing moves any more: no less a limit for an engine."""
_V1 = _Files(("memory.limit_in_bytes",), "memory.usage_in_bytes", "total_inactive_file")


def memory_limit(read: Reader) -> MemoryLimit:
    """The limits of the process's groups, v2 and v1.

    The groups are those of ``/proc/self/cgroup`` (cgroups(7)). Within a container that path may belong to the host's
    view: groups that are not there are passed over, and the mount's own root is always read.
    """
    found: list[MemoryLimit] = []
    for line in (read.text("/proc/self/cgroup") or "").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        if number == "0" and not controllers:
            for mount in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified"):
                found += _levels(read, mount, group, _V2)
        elif "memory" in controllers.split(","):
            found += _levels(read, "/sys/fs/cgroup/memory", group, _V1)
    return MemoryLimit(
        min((each.limit_bytes for each in found if each.limit_bytes is not None), default=None),
        min((each.free_bytes for each in found if each.free_bytes is not None), default=None),
    )


def _levels(read: Reader, mount: str, group: str, files: _Files) -> list[MemoryLimit]:
    """A group and all above it, as far as their files are there."""
    own = PurePosixPath("/", group.lstrip("/"))
    found = []
    for level in (own, *own.parents):
        if ".." in level.parts:
            continue
        folder = f"{mount}{str(level).rstrip('/')}"
        limits = [value for name in files.limits if (value := _limit(read, f"{folder}/{name}")) is not None]
        if limits:
            found.append(MemoryLimit(min(limits), _free(read, folder, files, min(limits))))
    return found


def _limit(read: Reader, path: str) -> int | None:
    if not read.exists(path) or read.text(path) == "max":
        return None
    value = read.number(path)
    if value is not None and value < _LEAST_BYTES:
        read.refuse(path, f"{value:,} bytes is no limit that a process could run under")
        return None
    return value if value is not None and value < _V1_UNLIMITED_BYTES else None


def _free(read: Reader, folder: str, files: _Files, limit: int) -> int | None:
    usage = read.number(f"{folder}/{files.usage}") if read.exists(f"{folder}/{files.usage}") else None
    if usage is None:
        return None
    text = read.text(f"{folder}/memory.stat") or ""
    line = re.search(rf"^{files.cache} ([0-9]{{1,18}})$", text, re.MULTILINE | re.ASCII)
    cache = min(int(line[1]), usage) if line else 0
    return max(0, limit - usage + cache)
