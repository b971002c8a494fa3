"""The memory limit that this process runs under: its own control group and every one above it."""

from __future__ import annotations

from pathlib import PurePosixPath

from archonctl.host.kernel_files import Reader

_V1_UNLIMITED_BYTES = 1 << 62
"""cgroup v1 writes "no limit" as the largest page count: 0x7ffffffffffff000 with 4 KiB pages."""


def memory_limit_bytes(read: Reader) -> int | None:
    """The smallest memory limit in bytes of the process's groups, v2 and v1; None if there is none.

    The groups are those of ``/proc/self/cgroup`` (cgroups(7)). Within a container that path may belong to the host's
    view: groups that are not there are passed over, and the mount's own root is always read.
    """
    limits: list[int] = []
    for line in (read.text("/proc/self/cgroup") or "").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        if number == "0" and not controllers:
            for mount in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified"):
                limits += _limits(read, mount, group, "memory.max")
        elif "memory" in controllers.split(","):
            limits += _limits(read, "/sys/fs/cgroup/memory", group, "memory.limit_in_bytes")
    return min(limits, default=None)


def _limits(read: Reader, mount: str, group: str, name: str) -> list[int]:
    """The limits of a group and of all above it, as far as their files are there."""
    own = PurePosixPath("/", group.lstrip("/"))
    found: list[int] = []
    for level in (own, *own.parents):
        if ".." in level.parts:
            continue
        path = f"{mount}{str(level).rstrip('/')}/{name}"
        if not read.exists(path) or read.text(path) == "max":
            continue
        value = read.number(path)
        if value is not None and value < 1 << 20:
            read.note(path, f"{value:,} bytes is no limit that a process could run under")
        elif value is not None and value < _V1_UNLIMITED_BYTES:
            found.append(value)
    return found
