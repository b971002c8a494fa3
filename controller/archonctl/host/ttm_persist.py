"""The limit for every later boot: one modprobe.d file, shown as a diff, and what a person has to do beside it."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path

from archonctl.errors import GateRefusal, UsageError
from archonctl.host import initramfs
from archonctl.host.bootloader import BootLoader, boot_loader, rebuild_steps
from archonctl.host.detect import TTM_MODULES
from archonctl.host.ttm import TtmState, pages_of

MODPROBE_FILE = "etc/modprobe.d/archon-ttm.conf"

RAM_SHARE = 0.9
"""Never more of RAM than this; the preflight script has the same bound."""


@dataclass(frozen=True, slots=True)
class Persist:
    """A proposal. ``new`` is the text of ``path``; None where a file would do nothing and only an argument works."""

    pages: int
    target_mib: int
    path: str
    old: str
    new: str | None
    loader: BootLoader
    steps: tuple[str, ...]
    """What remains to be done by a person, in order."""

    @property
    def diff(self) -> str:
        """Unified; empty where nothing changes."""
        if self.new is None:
            return ""
        before, after = self.old.splitlines(keepends=True), self.new.splitlines(keepends=True)
        source = self.path if self.old else "/dev/null"
        return "".join(difflib.unified_diff(before, after, source, self.path))


def propose(state: TtmState, root: Path, target_mib: int) -> Persist:
    """How ``target_mib`` is set at every boot. Writes nothing.

    Raises UsageError ``ttm-target-over-ram`` for more than RAM allows.
    """
    if state.ram_mib is not None and target_mib > int(state.ram_mib * RAM_SHARE):
        message = f"{target_mib:,} MiB are more than {RAM_SHARE:.0%} of this machine's {state.ram_mib:,} MiB"
        raise UsageError("ttm-target-over-ram", message, hint=f"at most {int(state.ram_mib * RAM_SHARE):,} MiB")
    pages = pages_of(target_mib, state.page_bytes)
    loader = boot_loader(root, f"{state.binding}.pages_limit={pages}")
    old = _text(root / MODPROBE_FILE)
    if state.built_in or loader.kind == "ostree":
        return Persist(pages, target_mib, f"/{MODPROBE_FILE}", old, None, loader, (*loader.steps, "reboot"))
    new = (
        f"# Written by archonctl host ttm: {target_mib} MiB in pages of {state.page_bytes // 1024} KiB.\n"
        f"options {state.binding} pages_limit={pages}\n"
    )
    in_image = state.release and any(
        initramfs.holds_module(image, module) is not False
        for image in initramfs.images(root, state.release)
        for module in TTM_MODULES
    )
    steps = (*(rebuild_steps(root) if in_image else ()), "reboot, or raise it now with a start of the unit")
    return Persist(pages, target_mib, f"/{MODPROBE_FILE}", old, new, loader, steps)


def refuse_conflicts(state: TtmState) -> None:
    """Raises GateRefusal ``ttm-options-conflict`` where another file or the command line sets the limit as well."""
    for setting in state.settings:
        is_ours = setting.place.path == f"/{MODPROBE_FILE}"
        is_limit = setting.name == "pages_limit" and setting.module in TTM_MODULES
        if is_limit and setting.via != "running" and not is_ours:
            raise GateRefusal(
                "ttm-options-conflict",
                f"{setting.module}.pages_limit={setting.value} is set there already: a second line would contradict it",
                where=str(setting.place),
                hint="remove it, or change it by hand and leave this file away",
            )


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="backslashreplace")
    except OSError:
        return ""
