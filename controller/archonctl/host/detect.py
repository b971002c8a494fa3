"""What this machine has, as its kernel and drivers tell it: RAM, control groups, the TTM limit and cards.

Everything is read below an injectable root, so that tests (and images of other machines) are read the same way; NVML
is asked for this machine alone. What cannot be read or makes no sense is unknown (None), never 0, and in the notes.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Literal

from archonctl.host.cgroup import memory_limit
from archonctl.host.drm import drm_cards
from archonctl.host.kernel_files import Reader
from archonctl.host.nvidia import Nvml, load_nvml, nvidia_cards
from archonctl.host.profile import Card, Host
from archonctl.host.ram import Ram, read_ram
from archonctl.memory.interval import MIB

TTM_MODULES = ("amdttm", "ttm")
"""AMD's packaged driver brings its own copy of the module; where it is loaded, its limit is the one that binds."""

COMPUTE_DEVICES = ("/dev/kfd", "/dev/nvidiactl", "/dev/nvidia-uvm")
"""The nodes that the compute drivers of AMD and NVIDIA open first."""


def detect_host(root: Path = Path("/"), page_bytes: int | None = None, nvml: Nvml | None = None) -> Host:
    """The machine as Host with ``source`` "sysfs"; figures in MiB, rounded down.

    ``page_bytes`` stands in for the running kernel's page size, ``nvml`` for pynvml (which is loaded for the root "/"
    alone, where a driver is there). Raises nothing: what is unknown is None.
    """
    read = Reader(root)
    ram, limit = read_ram(read), memory_limit(read)
    page = page_bytes or os.sysconf("SC_PAGE_SIZE")
    pages = _ttm_pages_limit(read)
    if nvml is None and root == Path("/"):
        nvml = load_nvml(read)
    cards = _numbered(nvidia_cards(read, ram, nvml), drm_cards(read, None if pages is None else pages * page // MIB))
    return Host(
        name=read.text("/proc/sys/kernel/hostname") or "",
        source="sysfs",
        page_bytes=page,
        ram_mib=_mib_of_kib(ram.total_kib),
        available_mib=_mib_of_kib(ram.available_kib),
        cgroup_limit_mib=None if limit.limit_bytes is None else limit.limit_bytes // MIB,
        cgroup_free_mib=None if limit.free_bytes is None else limit.free_bytes // MIB,
        hugepages_mib=_mib_of_kib(ram.hugepages_kib),
        memlock_mib=_memlock_mib(ram),
        ttm_pages_limit=pages,
        cards=cards,
        devices=tuple(device for device in COMPUTE_DEVICES if read.exists(device)),
        groups=_groups(read),
        notes=tuple(read.notes),
    )


def _numbered(nvidia: tuple[Card, ...], others: tuple[Card, ...]) -> tuple[Card, ...]:
    """One index a card: those of NVML stay, since that is how they are chosen."""
    start = max((card.index for card in nvidia), default=-1) + 1
    return (*nvidia, *(card.model_copy(update={"index": start + card.index}) for card in others))


def _mib_of_kib(kib: int | None) -> int | None:
    return None if kib is None else kib // 1024


def _memlock_mib(ram: Ram) -> int | Literal["unlimited"] | None:
    return ram.memlock_kib if isinstance(ram.memlock_kib, str) else _mib_of_kib(ram.memlock_kib)


def _groups(read: Reader) -> dict[Literal["video", "render"], int]:
    """The numbers of video and render in /etc/group."""
    text = read.text("/etc/group") or ""
    found = re.findall(r"^(video|render):[^:\n]*:([0-9]{1,9}):", text, re.MULTILINE | re.ASCII)
    return {name: int(number) for name, number in found}


def _ttm_pages_limit(read: Reader) -> int | None:
    """The kernel's limit of pinned pages; 0 means that no driver has set it yet."""
    for module in TTM_MODULES:
        path = f"/sys/module/{module}/parameters/pages_limit"
        if read.exists(path):
            value = read.number(path)
            if value == 0:
                read.note(path, "0: no GPU driver has set the limit yet, so it says nothing")
            return value or None
    return None
