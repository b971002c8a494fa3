"""What this machine has, as its kernel tells it: RAM, cgroup limits, the TTM limit and AMD cards.

Everything is read below an injectable root, so that tests (and images of other machines) are read the same way.
What cannot be read or makes no sense is unknown (None) and named in the notes: never 0.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Literal

from archonctl.host.cgroup import memory_limit_bytes
from archonctl.host.kernel_files import Reader
from archonctl.host.profile import Card, Host
from archonctl.memory.interval import MIB

TTM_MODULES = ("amdttm", "ttm")
"""AMD's packaged driver brings its own copy of the module; where it is loaded, its limit is the one that binds."""

COMPUTE_DEVICES = ("/dev/kfd", "/dev/nvidiactl", "/dev/nvidia-uvm")
"""The nodes that the compute drivers of AMD and NVIDIA open first."""

_AMD_VENDOR = "0x1002"
_CARD = re.compile(r"card([0-9]+)")


def detect_host(root: Path = Path("/"), page_bytes: int | None = None) -> Host:
    """The machine as Host with ``source`` "sysfs"; figures in MiB, rounded down.

    ``page_bytes`` stands in for the running kernel's page size. Raises nothing: what is unknown is None.
    """
    read = Reader(root)
    memory = _meminfo(read)
    total, available = memory.get("MemTotal"), memory.get("MemAvailable")
    if total is not None and available is not None and available > total:
        read.note("/proc/meminfo", f"MemAvailable {available:,} kB is over MemTotal {total:,} kB")
        available = None
    limit = memory_limit_bytes(read)
    cards = _amd_cards(read)
    _nvidia_note(read)
    return Host(
        name=read.text("/proc/sys/kernel/hostname") or "",
        source="sysfs",
        page_bytes=page_bytes or os.sysconf("SC_PAGE_SIZE"),
        ram_mib=None if total is None else total // 1024,
        available_mib=None if available is None else available // 1024,
        cgroup_limit_mib=None if limit is None else limit // MIB,
        ttm_pages_limit=_ttm_pages_limit(read),
        cards=cards,
        devices=tuple(device for device in COMPUTE_DEVICES if read.exists(device)),
        groups=_groups(read),
        notes=tuple(read.notes),
    )


def _groups(read: Reader) -> dict[Literal["video", "render"], int]:
    """The numbers of video and render in /etc/group."""
    text = read.text("/etc/group") or ""
    found = re.findall(r"^(video|render):[^:\n]*:([0-9]{1,9}):", text, re.MULTILINE | re.ASCII)
    return {name: int(number) for name, number in found}


def _meminfo(read: Reader) -> dict[str, int]:
    """MemTotal and MemAvailable in KiB (the kernel writes "kB" and means 1024 bytes)."""
    text = read.text("/proc/meminfo", wanted=True)
    found: dict[str, int] = {}
    for key in ("MemTotal", "MemAvailable"):
        if text is None:
            continue
        line = re.search(rf"^{key}:[ \t]+([0-9]{{1,15}}) kB$", text, re.MULTILINE | re.ASCII)
        if line is None or (key == "MemTotal" and int(line[1]) < 1024):
            read.note("/proc/meminfo", f"no usable {key} line")
        else:
            found[key] = int(line[1])
    return found


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


def _amd_cards(read: Reader) -> tuple[Card, ...]:
    """The cards of amdgpu in the order of their DRM numbers (``card0``, ``card1``, ...)."""
    cards: list[Card] = []
    names = sorted((name for name in read.names("/sys/class/drm") if _CARD.fullmatch(name)), key=_card_number)
    for name in names:
        device = f"/sys/class/drm/{name}/device"
        if not read.exists(f"{device}/mem_info_vram_total"):
            continue
        total, used = read.number(f"{device}/mem_info_vram_total"), read.number(f"{device}/mem_info_vram_used")
        if total is None:
            continue
        if total < MIB:
            read.note(f"{device}/mem_info_vram_total", f"{total:,} bytes is no card's memory; the card is left out")
            continue
        if used is not None and used > total:
            read.note(f"{device}/mem_info_vram_used", f"{used:,} bytes used of {total:,}; free memory is unknown")
            used = None
        free = None if used is None else (total - used) // MIB
        cards.append(Card(index=len(cards), name=_card_name(read, name), total_mib=total // MIB, free_mib=free))
    return tuple(cards)


def _card_number(name: str) -> int:
    return int(name.removeprefix("card"))


def _card_name(read: Reader, card: str) -> str:
    device = f"/sys/class/drm/{card}/device"
    product = read.text(f"{device}/product_name") or ""
    vendor, model = read.text(f"{device}/vendor") or "", read.text(f"{device}/device") or ""
    maker = "AMD" if vendor == _AMD_VENDOR else vendor
    return f"{card} {product or f'{maker} {model}'}".strip()


def _nvidia_note(read: Reader) -> None:
    cards = read.names("/proc/driver/nvidia/gpus")
    if cards:
        read.note("/proc/driver/nvidia/gpus", f"{len(cards)} NVIDIA cards, whose memory is not to be read from files")
