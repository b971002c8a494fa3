"""NVIDIA cards through NVML, which is asked in a thread: a driver in trouble may never answer."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from archonctl.host.kernel_files import Reader
from archonctl.host.profile import MAX_CARD_MIB, Card
from archonctl.host.ram import Ram
from archonctl.memory.interval import MIB

Nvml = Any
"""The module pynvml of nvidia-ml-py, or something with its functions."""

WAIT_S = 15.0
_PLACE = "/proc/driver/nvidia"


@dataclass(frozen=True, slots=True)
class _Memory:
    """Bytes as NVML counts them; ``reserved`` is kept by the driver and is in no program's total."""

    total: int
    free: int | None
    reserved: int


def nvidia_cards(read: Reader, ram: Ram, nvml: Nvml | None) -> tuple[Card, ...]:
    """The cards in the order of NVML (that of the bus); empty where there are none, or with a note where it fails.

    ``nvml`` None: the cards that /proc names are noted and left out.
    """
    named = read.names(f"{_PLACE}/gpus")
    if nvml is None:
        if named:
            read.note(f"{_PLACE}/gpus", f"{len(named)} NVIDIA cards, whose memory is not to be read from files")
        return ()
    found: list[Card] = []
    answer = _bounded(lambda: _ask(read, ram, nvml, found))
    if answer:
        read.note("NVML", answer)
    return tuple(found)


def load_nvml(read: Reader) -> Nvml | None:
    """pynvml, where this machine has the driver; else None."""
    if not any(read.exists(path) for path in (_PLACE, "/dev/nvidiactl", "/dev/nvhost-ctrl", "/dev/dxg")):
        return None
    try:
        import pynvml
    except ImportError as err:
        read.note("NVML", f"cannot be asked: {err}")
        return None
    return pynvml


def _bounded(ask: Callable[[], None]) -> str:
    """What went wrong, or ""."""
    said: list[str] = []

    def run() -> None:
        try:
            ask()
        except Exception as err:  # noqa: BLE001  whatever a foreign library raises is a note, never a traceback
            said.append(f"{type(err).__name__}: {err}")

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(WAIT_S)
    return f"did not answer in {WAIT_S:g} s" if thread.is_alive() else "".join(said)


def _ask(read: Reader, ram: Ram, nvml: Nvml, found: list[Card]) -> None:
    nvml.nvmlInit()
    try:
        driver = _text(nvml.nvmlSystemGetDriverVersion())
        for index in range(nvml.nvmlDeviceGetCount()):
            try:
                card = _card(read, ram, nvml, index, driver)
            except Exception as err:  # noqa: BLE001  what one card's driver makes up is no reason to lose the others
                read.note(f"NVML card {index}", f"left out: {str(err).splitlines()[0] if str(err) else repr(err)}")
                continue
            if card is not None:
                found.append(card)
    finally:
        nvml.nvmlShutdown()


def _card(read: Reader, ram: Ram, nvml: Nvml, index: int, driver: str) -> Card | None:
    whole = nvml.nvmlDeviceGetHandleByIndex(index)
    name = _text(nvml.nvmlDeviceGetName(whole))
    place = f"NVML card {index} ({name})"
    handle: object = whole
    if _is_divided(nvml, whole):
        slices = _slices(nvml, whole)
        if not slices:
            read.refuse(place, "is divided (MIG) and has no slice that can be read: no program gets any of it")
            return None
        what = "a program gets one of them, the first unless CUDA_VISIBLE_DEVICES names another"
        read.note(place, f"is divided (MIG) into {len(slices)} slices; {what}, and its memory is what counts here")
        handle, name = slices[0], _text(nvml.nvmlDeviceGetName(slices[0]))
    try:
        memory = _memory(nvml, handle)
    except nvml.NVMLError as err:
        return _unified(read, ram, index, name, driver, _target(nvml, whole), f"{place}: {err}")
    if memory.total < MIB or memory.total // MIB > MAX_CARD_MIB:
        read.refuse(place, f"{memory.total:,} bytes is no card's memory; the card is left out")
        return None
    total, free = memory.total - memory.reserved, memory.free
    if not 0 <= memory.reserved < memory.total:
        read.refuse(place, f"{memory.reserved:,} bytes reserved of {memory.total:,}; they are not taken off")
        total = memory.total
    if free is not None and not 0 <= free <= memory.total:
        read.refuse(place, f"{free:,} bytes free of {memory.total:,}; free memory is unknown")
        free = None
    return Card(
        index=index,
        name=name,
        total_mib=total // MIB,
        free_mib=None if free is None else min(free, total) // MIB,
        installed_mib=memory.total // MIB,
        maker="nvidia",
        target=_target(nvml, whole),
        driver=driver,
        pci=_address(nvml, whole),
    )


def _memory(nvml: Nvml, handle: object) -> _Memory:
    """Version 2 of the call tells what is reserved (drivers from 510); older ones have it within "used"."""
    try:
        seen = nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2)
        return _Memory(int(seen.total), int(seen.free), int(seen.reserved))
    except (AttributeError, TypeError, nvml.NVMLError):
        seen = nvml.nvmlDeviceGetMemoryInfo(handle)
        return _Memory(int(seen.total), int(seen.free), 0)


def _target(nvml: Nvml, handle: object) -> str:
    try:
        major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
    except nvml.NVMLError:
        return ""
    return f"{int(major)}.{int(minor)}"


def _unified(read: Reader, ram: Ram, index: int, name: str, driver: str, target: str, why: str) -> Card | None:
    """A card without memory of its own (GB10, Orin): CUDA's total is RAM. Only for those that are known as such."""
    from archonctl.host.cards import find_card

    known = find_card(name)
    if known is None or not known.unified or ram.total_kib is None:
        read.note(f"NVML card {index}", f"{why}; the card is left out")
        return None
    free = None if ram.available_kib is None else ram.available_kib // 1024
    total = ram.total_kib // 1024
    return Card(
        index=index,
        name=name,
        total_mib=total,
        free_mib=free,
        maker="nvidia",
        target=target,
        driver=driver,
        unified=True,
    )


def _is_divided(nvml: Nvml, handle: object) -> bool:
    try:
        return bool(nvml.nvmlDeviceGetMigMode(handle)[0] == 1)
    except (AttributeError, nvml.NVMLError):
        return False


def _slices(nvml: Nvml, handle: object) -> list[object]:
    """Handles of the MIG devices of a card, in the order in which CUDA counts them; places may be empty."""
    found: list[object] = []
    for place in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            found.append(nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, place))
        except nvml.NVMLError:
            continue
    return found


def _address(nvml: Nvml, handle: object) -> str:
    try:
        return _text(nvml.nvmlDeviceGetPciInfo(handle).busId)
    except nvml.NVMLError:
        return ""


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)
