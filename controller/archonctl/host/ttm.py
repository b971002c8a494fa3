"""The kernel's limit of pinned memory for cards: what it is now, what it will be after the next boot, what is wrong."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from archonctl.findings import Finding, Place
from archonctl.host import initramfs
from archonctl.host.bootloader import rebuild_steps
from archonctl.host.detect import TTM_MODULES
from archonctl.host.kernel_files import Reader
from archonctl.host.module_options import Setting, read_settings
from archonctl.memory.interval import MIB

PARAMETERS = ("pages_limit", "page_pool_size", "dma32_pages_limit")
"""Every parameter of the module (Linux drivers/gpu/drm/ttm, 6.1 to 6.12); pages, mode 0644."""

_LIMIT = "pages_limit"
_MODULES = (*TTM_MODULES, "amdgpu")
_DECIMAL = re.compile(r"0|[1-9][0-9]{0,19}", re.ASCII)


@dataclass(frozen=True, slots=True)
class TtmState:
    """What is there. ``pages`` is None where no module is loaded or its limit cannot be read; 0 means "not set yet"."""

    module: str
    pages: int | None
    page_bytes: int
    ram_mib: int | None
    release: str
    built_in: bool
    settings: tuple[Setting, ...]
    """Of these modules only, as far as they concern the limit."""

    @property
    def limit_mib(self) -> int | None:
        """The limit in MiB, rounded down."""
        return None if self.pages is None else self.pages * self.page_bytes // MIB

    @property
    def next_pages(self) -> int | None:
        """Pages that the next boot will set; None where it is left to the kernel, or two values contradict."""
        values = {s.value for s in self.settings if s.via != "running" and _is_limit(s) and s.module == self.binding}
        return int(next(iter(values))) if len(values) == 1 and all(map(_DECIMAL.fullmatch, values)) else None

    @property
    def binding(self) -> str:
        """The module whose limit counts: the loaded one, ``ttm`` if none is."""
        return self.module or "ttm"


def read_ttm(root: Path, page_bytes: int | None = None) -> TtmState:
    """The state below ``root``. ``page_bytes`` stands in for the running kernel's page size. Raises nothing."""
    read = Reader(root)
    module = next((m for m in TTM_MODULES if read.exists(f"/sys/module/{m}/parameters/{_LIMIT}")), "")
    memory = re.search(r"^MemTotal:\s+([0-9]{1,15}) kB$", read.text("/proc/meminfo") or "", re.MULTILINE)
    release = read.text("/proc/sys/kernel/osrelease") or ""
    built_in = read.text(f"/lib/modules/{release}/modules.builtin") or ""
    return TtmState(
        module=module,
        pages=read.number(f"/sys/module/{module}/parameters/{_LIMIT}") if module else None,
        page_bytes=page_bytes or os.sysconf("SC_PAGE_SIZE"),
        ram_mib=int(memory[1]) // 1024 if memory else None,
        release=release,
        built_in="/ttm.ko" in built_in,
        settings=tuple(setting for setting in read_settings(root) if _concerns(setting)),
    )


def pages_of(mib: int, page_bytes: int) -> int:
    """MiB as pages, rounded up: 98,304 MiB (96 GiB) are 25,165,824 pages of 4 KiB."""
    return -(-mib * MIB // page_bytes)


def judge_ttm(state: TtmState, root: Path, floor_mib: int | None = None) -> tuple[Finding, ...]:
    """Everything that is wrong with the limit now and at the next boot, against a floor where one is known."""
    found = [*_options(state), *_conflicts(state), *_never_applied(state, root)]
    if floor_mib is not None:
        found += _against_floor(state, floor_mib)
    return tuple(found)


def _options(state: TtmState) -> Iterator[Finding]:
    for setting in state.settings:
        said = f"{setting.module}.{setting.name}={setting.value}"
        if setting.module == "amdgpu":
            message = f"{said} sets the driver's own limit in MiB and wins over the module's"
            yield Finding(
                "ttm-option-deprecated",
                "warning",
                message,
                setting.place,
                "remove it; pages_limit of ttm is the one knob",
            )
        elif setting.name not in PARAMETERS or setting.module not in TTM_MODULES:
            meant = f"{_close(setting.module, TTM_MODULES) or 'ttm'}.{_close(setting.name, PARAMETERS) or _LIMIT}"
            message = f"{said} names no parameter, and the kernel ignores it"
            yield Finding("ttm-option-misspelt", "error", message, setting.place, f"did you mean {meant}?")
        elif state.module and setting.module != state.module:
            message = f"{said} is for {setting.module}, and {state.module} is the module that is loaded here"
            yield Finding("ttm-option-wrong-module", "error", message, setting.place, f"set it for {state.module}")
        elif not _DECIMAL.fullmatch(setting.value):
            yield _bad_value(setting, said)
        elif _is_limit(setting) and state.ram_mib and int(setting.value) * state.page_bytes // MIB > state.ram_mib:
            mib = int(setting.value) * state.page_bytes // MIB
            message = f"{said} is {mib:,} MiB, the machine has {state.ram_mib:,}"
            yield Finding("ttm-option-invalid", "error", message, setting.place, "count in pages, not in bytes or KiB")


def _bad_value(setting: Setting, said: str) -> Finding:
    octal = re.fullmatch(r"0[0-7]+", setting.value)
    reason = f"read as {int(setting.value, 8):,}, for a leading zero means octal" if octal else "no plain number"
    message = f"{said} is {reason}"
    return Finding("ttm-option-invalid", "error", message, setting.place, "write pages as plain decimal digits")


def _conflicts(state: TtmState) -> Iterator[Finding]:
    # this boot's command line counts only where what the next one will have is not to be seen
    has_next = any(setting.via == "boot" for setting in state.settings)
    first: dict[tuple[str, str], Setting] = {}
    for setting in (s for s in state.settings if s.via != "running" or not has_next):
        key = (setting.module, setting.name)
        before = first.setdefault(key, setting)
        if before.value != setting.value and setting.module in TTM_MODULES and setting.name in PARAMETERS:
            message = f"{'.'.join(key)} is {setting.value} here and {before.value} at {before.place}"
            yield Finding("ttm-options-conflict", "error", message, setting.place, "keep one of them")


def _never_applied(state: TtmState, root: Path) -> Iterator[Finding]:
    """Lines of modprobe.d that the next boot would not see."""
    lines = [s for s in state.settings if s.via == "modprobe" and s.module in _MODULES]
    for path in dict.fromkeys(s.place.path for s in lines):
        place = next(s.place for s in lines if s.place.path == path)
        if state.built_in:
            message = f"the module is built into {state.release}: modprobe never loads it, so the file does nothing"
            yield Finding("ttm-built-in", "error", message, place, "use the kernel's command line")
            continue
        for image in initramfs.images(root, state.release) if state.release else ():
            if image.stat().st_mtime >= _mtime(root / path.lstrip("/")):
                continue
            held = [initramfs.holds_module(image, module) for module in TTM_MODULES]
            if held != [False, False]:
                yield _stale(place, f"/{image.relative_to(root)}", any(held), rebuild_steps(root)[0])


def _stale(place: Place, image: str, is_sure: bool, fix: str) -> Finding:
    if is_sure:
        message = f"newer than {image}, which holds the module: the next boot still sets what it was made with"
        return Finding("ttm-initramfs-stale", "error", message, place, fix)
    message = f"newer than {image}, which could not be looked into: if it holds the module, the change does nothing yet"
    return Finding("ttm-initramfs-stale", "warning", message, place, fix)


def _mtime(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _against_floor(state: TtmState, floor_mib: int) -> Iterator[Finding]:
    floor = pages_of(floor_mib, state.page_bytes)
    need = f"{floor:,} pages ({floor_mib:,} MiB)"
    if not state.module:
        yield Finding(
            "ttm-absent", "error", f"neither ttm nor amdttm is loaded; {need} are needed", fix="modprobe amdgpu"
        )
        return
    place = Place(f"/sys/module/{state.module}/parameters/{_LIMIT}")
    if state.pages is None:
        yield Finding("ttm-unreadable", "error", f"no number is there; {need} are needed", place)
    elif state.pages == 0:
        yield Finding("ttm-not-set-yet", "warning", f"0 until the first GPU device is there; {need} are needed", place)
    elif state.pages < floor:
        short = floor_mib - (state.limit_mib or 0)
        message = f"{state.pages:,} pages ({state.limit_mib:,} MiB) now, {need} are needed: {short:,} MiB short"
        yield Finding("ttm-cap-short", "error", message, place, "a start of the unit raises it")
    if state.next_pages is None:
        message = f"nothing sets the limit at a boot: it comes back to half of RAM, and {need} are needed"
        yield Finding("ttm-not-persistent", "warning", message, place, "archonctl host ttm ENDPOINT --persist --write")
    elif state.next_pages < floor:
        message = f"the next boot sets {state.next_pages:,} pages, {need} are needed"
        where = next(s.place for s in state.settings if _is_limit(s) and s.via != "running")
        yield Finding("ttm-not-persistent", "warning", message, where, "archonctl host ttm ENDPOINT --persist")


def _is_limit(setting: Setting) -> bool:
    return setting.name == _LIMIT and setting.module in TTM_MODULES


def _concerns(setting: Setting) -> bool:
    """Of the modules themselves everything; else what is nearly a name of theirs."""
    if setting.module in TTM_MODULES:
        return True
    if setting.module == "amdgpu":
        return setting.name in PARAMETERS or _close(setting.name, ("gttsize",)) == "gttsize"
    return bool(_close(setting.module, _MODULES)) and bool(_close(setting.name, PARAMETERS))


def _close(word: str, names: tuple[str, ...]) -> str:
    return next(iter(difflib.get_close_matches(word, names, n=1, cutoff=0.6)), "")
