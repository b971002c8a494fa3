"""Machines as files below a folder: what the kernel and its drivers would show there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

MIB = 1 << 20


def lay_out(root: Path, files: Mapping[str, str | bytes]) -> None:
    """Write files below a root; a value that begins with ``->`` is a link."""
    for name, content in files.items():
        path = root / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, str) and content.startswith("->"):
            path.symlink_to(content[2:])
        else:
            path.write_bytes(content if isinstance(content, bytes) else content.encode())


def amd(number: int, *, vram: int, gtt: int, device: str = "0x7551", driver: str = "amdgpu") -> dict[str, str]:
    """One AMD card in sysfs, in MiB."""
    address = f"0000:0{number + 3}:00.0"
    pci, card = f"sys/bus/pci/devices/{address}", f"sys/class/drm/card{number}/device"
    files = {f"{pci}/class": "0x030000", f"{pci}/vendor": "0x1002", f"{pci}/device": device}
    if driver:
        files[f"{pci}/driver"] = f"->../../../../bus/pci/drivers/{driver}"
    if driver == "amdgpu":
        files |= {
            f"{card}/mem_info_vram_total": str(vram * MIB),
            f"{card}/mem_info_vram_used": str(64 * MIB),
            f"{card}/mem_info_gtt_total": str(gtt * MIB),
            f"{card}/mem_info_gtt_used": "0",
            f"{card}/vendor": "0x1002",
            f"{card}/device": device,
            f"{card}/uevent": f"DRIVER=amdgpu\nPCI_SLOT_NAME={address}\n",
            f"{card}/drm/renderD{128 + number}/dev": "",
        }
    return files


def ttm(pages: int | str, module: str = "ttm", ram_mib: int = 251_976) -> dict[str, str]:
    """A module's limit, on a machine with that much RAM."""
    memory = f"MemTotal: {ram_mib * 1024} kB\nMemAvailable: {(ram_mib - 4000) * 1024} kB\n"
    return {f"sys/module/{module}/parameters/pages_limit": f"{pages}\n", "proc/meminfo": memory}
