"""AMD and Intel cards from sysfs: memory, GTT, and the target that their kernels are built for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from archonctl.host.kernel_files import Reader
from archonctl.host.profile import MAX_CARD_MIB, Card
from archonctl.memory.interval import MIB

_CARD = re.compile(r"card([0-9]{1,4})", re.ASCII)
_NODES = "/sys/class/kfd/kfd/topology/nodes"
_AMD, _INTEL = "0x1002", "0x8086"
_INTEL_MEMORY = ("device/tile0/physical_vram_size_bytes", "lmem_total_bytes")
"""Below /sys/class/drm/cardN: of the xe driver (xe_tile_sysfs.c, hexadecimal), of i915 with local memory."""


@dataclass(frozen=True, slots=True)
class _Node:
    """A node of the compute driver that has SIMD units."""

    target: str
    is_apu: bool


def drm_cards(read: Reader, ttm_limit_mib: int | None) -> tuple[Card, ...]:
    """The cards in the order of their DRM numbers, indices from 0. A unified one is left out beside a discrete one.

    ``ttm_limit_mib`` is the kernel's limit of pinned memory: what a unified card may have.
    """
    nodes = _kfd_nodes(read)
    names = sorted((name for name in read.names("/sys/class/drm") if _CARD.fullmatch(name)), key=_number)
    found = [card for name in names if (card := _card(read, name, nodes, ttm_limit_mib)) is not None]
    discrete = [card for card in found if not card.unified]
    for card in found if discrete else ():
        if card.unified:
            read.note(card.name, "shares RAM and is left out beside a card with memory of its own")
    kept = discrete or found
    return tuple(card.model_copy(update={"index": index}) for index, card in enumerate(kept))


def _number(card: str) -> int:
    return int(card.removeprefix("card"))


def _card(read: Reader, name: str, nodes: dict[int, _Node], ttm_limit_mib: int | None) -> Card | None:
    device = f"/sys/class/drm/{name}/device"
    if read.exists(f"{device}/mem_info_vram_total"):
        return _amd_card(read, name, nodes, ttm_limit_mib)
    return _intel_card(read, name) if read.text(f"{device}/vendor") == _INTEL else None


def _amd_card(read: Reader, name: str, nodes: dict[int, _Node], ttm_limit_mib: int | None) -> Card | None:
    device = f"/sys/class/drm/{name}/device"
    vram = _pair(read, f"{device}/mem_info_vram")
    if vram is None:
        return None
    total, free = vram
    gtt, gtt_free = (
        _pair(read, f"{device}/mem_info_gtt") if read.exists(f"{device}/mem_info_gtt_total") else None
    ) or (None, None)
    node = nodes.get(_render_minor(read, device), _Node("", False))
    ids = f"{(read.text(f'{device}/vendor') or '')[2:]}:{(read.text(f'{device}/device') or '')[2:]}"
    unified = _is_unified(ids, node, total, gtt)
    if unified and gtt is not None and total < gtt:
        # amdgpu_ttm_init: an APU whose carve-out is under its GTT allocates from GTT, up to the limit of TTM
        total = ttm_limit_mib or gtt
        free = None if gtt_free is None else max(0, total - (gtt - gtt_free))
    return Card(
        index=0,
        name=_name(read, name, ids, total, unified),
        total_mib=total,
        free_mib=free,
        maker="amd" if ids.startswith("1002") else "",
        target=node.target,
        driver=_driver(read, "amdgpu"),
        pci=_pci(read, device),
        unified=unified,
        gtt_mib=gtt,
        gtt_free_mib=gtt_free,
    )


def _pair(read: Reader, path: str) -> tuple[int, int | None] | None:
    """Total and free MiB of ``PATH_total`` and ``PATH_used``; None where the total is no memory of a card."""
    total, used = read.number(f"{path}_total"), read.number(f"{path}_used")
    if total is None:
        return None
    if total < MIB or total // MIB > MAX_CARD_MIB:
        read.refuse(f"{path}_total", f"{total:,} bytes is no card's memory; it is left out")
        return None
    if used is not None and used > total:
        read.refuse(f"{path}_used", f"{used:,} bytes used of {total:,}; free memory is unknown")
        used = None
    return total // MIB, None if used is None else (total - used) // MIB


def _intel_card(read: Reader, name: str) -> Card | None:
    """A card with memory of its own; what is free is told by no file."""
    base = f"/sys/class/drm/{name}"
    for file in _INTEL_MEMORY:
        text = read.text(f"{base}/{file}")
        if text is None:
            continue
        if not re.fullmatch(r"0x[0-9a-fA-F]{1,16}|[0-9]{1,19}", text, re.ASCII):
            read.refuse(f"{base}/{file}", f"{text[:40]!a} is no number of bytes; the card is left out")
            return None
        total = int(text, 0) // MIB if text.startswith("0x") else int(text) // MIB
        if not 0 < total <= MAX_CARD_MIB:
            read.refuse(f"{base}/{file}", f"{total:,} MiB is no card's memory; the card is left out")
            return None
        ids = f"8086:{(read.text(f'{base}/device/device') or '')[2:]}"
        label, target = _name(read, name, ids, total, False), _known_target(ids, total)
        driver = next((d for d in ("xe", "i915") if read.exists(f"/sys/module/{d}")), "")
        return Card(
            index=0, name=label, total_mib=total, maker="intel", target=target,
            driver=_driver(read, driver) if driver else "", pci=_pci(read, f"{base}/device"),
        )  # fmt: skip
    return None


def _is_unified(ids: str, node: _Node, vram_mib: int, gtt_mib: int | None) -> bool:
    from archonctl.host.cards import all_cards

    if any(card.unified and ids.lower() in card.pci for card in all_cards()):
        return True
    return node.is_apu and gtt_mib is not None and vram_mib < gtt_mib


def _name(read: Reader, card: str, ids: str, total_mib: int, unified: bool) -> str:
    """The product's name where the card or the catalogue tells it, with the card's number in front."""
    from archonctl.host.cards import find_pci_card

    device = f"/sys/class/drm/{card}/device"
    product = read.text(f"{device}/product_name") or ""
    known = find_pci_card(ids, None if unified else total_mib)
    vendor, model = read.text(f"{device}/vendor") or "", read.text(f"{device}/device") or ""
    maker = {_AMD: "AMD", _INTEL: "Intel"}.get(vendor, vendor)
    return f"{card} {product or (known.name if known else '') or f'{maker} {model}'}".strip()


def _known_target(ids: str, total_mib: int) -> str:
    from archonctl.host.cards import find_pci_card

    known = find_pci_card(ids, total_mib)
    return known.target if known else ""


def _kfd_nodes(read: Reader) -> dict[int, _Node]:
    """Nodes by the number of their render device (``drm_render_minor``)."""
    found: dict[int, _Node] = {}
    for name in read.names(_NODES):
        if not name.isdigit():
            continue
        figures = dict(_properties(read, f"{_NODES}/{name}/properties"))
        version, minor = figures.get("gfx_target_version", 0), figures.get("drm_render_minor", 0)
        if figures.get("simd_count", 0) and minor > 0:
            found[minor] = _Node(_gfx(version), figures.get("cpu_cores_count", 0) > 0)
    return found


def _properties(read: Reader, path: str) -> Iterator[tuple[str, int]]:
    for line in (read.text(path) or "").splitlines():
        if pair := re.fullmatch(r"([a-z_0-9]{1,40}) ([0-9]{1,20})", line.strip(), re.ASCII):
            yield pair[1], int(pair[2])


def _gfx(version: int) -> str:
    """kfd_device.c: major x 10,000 + minor x 100 + stepping, the last two written in hexadecimal: 90010 is gfx90a."""
    major, minor, step = version // 10_000, version // 100 % 100, version % 100
    return f"gfx{major}{minor:x}{step:x}" if 0 < major < 100 and minor < 16 and step < 16 else ""


def _render_minor(read: Reader, device: str) -> int:
    found = (re.fullmatch(r"renderD([0-9]{1,4})", name, re.ASCII) for name in read.names(f"{device}/drm"))
    return next((int(match[1]) for match in found if match), -1)


def _driver(read: Reader, module: str) -> str:
    """The module with its own version where it has one (amdgpu-dkms), else that of the kernel."""
    version = read.text(f"/sys/module/{module}/version") or read.text("/proc/sys/kernel/osrelease") or ""
    return f"{module} {version[:64]}".strip()


def _pci(read: Reader, device: str) -> str:
    found = re.search(r"^PCI_SLOT_NAME=([0-9a-fA-F:.]{1,16})$", read.text(f"{device}/uevent") or "", re.MULTILINE)
    return found[1] if found else ""
