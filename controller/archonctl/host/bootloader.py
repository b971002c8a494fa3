"""How this machine's boot loader takes a kernel argument: advice only, since a wrong one may keep it from booting."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Loader = Literal["ostree", "grub", "grubby", "systemd-boot", "unified-image", "unknown"]


@dataclass(frozen=True, slots=True)
class BootLoader:
    """The loader, and the commands that add an argument to every later boot. ``steps`` are for a person."""

    kind: Loader
    steps: tuple[str, ...]


def boot_loader(root: Path, argument: str) -> BootLoader:
    """The loader below ``root`` by the files that it leaves, and how ``argument`` is added.

    Sources: rpm-ostree(1) kargs; grubby(8); grub-mkconfig(8); kernel-install(8) for /etc/kernel/cmdline; ukify(1).
    """
    if (root / "run/ostree-booted").exists() or (root / "ostree").is_dir():
        return BootLoader("ostree", (f"rpm-ostree kargs --append-if-missing={argument}",))
    if any((root / "boot/efi/EFI/Linux").glob("*.efi")) or any((root / "efi/EFI/Linux").glob("*.efi")):
        steps = (
            f"add to /etc/kernel/cmdline: {argument}",
            "kernel-install add-all  # it is within the image",
        )
        return BootLoader("unified-image", steps)
    if (root / "usr/sbin/grubby").exists() or (root / "usr/bin/grubby").exists():
        return BootLoader("grubby", (f"grubby --update-kernel=ALL --args={argument}",))
    if (root / "etc/default/grub").exists():
        update = "update-grub" if (root / "usr/sbin/update-grub").exists() else "grub-mkconfig -o /boot/grub/grub.cfg"
        return BootLoader("grub", (f"add to GRUB_CMDLINE_LINUX in /etc/default/grub: {argument}", update))
    if (root / "etc/kernel/cmdline").exists() or (root / "boot/loader/entries").is_dir():
        return BootLoader("systemd-boot", (f"add to /etc/kernel/cmdline: {argument}", "kernel-install add-all"))
    return BootLoader("unknown", (f"add to the kernel's command line: {argument}",))


def rebuild_steps(root: Path) -> tuple[str, ...]:
    """How the initramfs is made again here."""
    for program, command in (
        ("usr/sbin/update-initramfs", "update-initramfs -u"),
        ("usr/bin/mkinitcpio", "mkinitcpio -P"),
        ("usr/bin/dracut", "dracut --force --regenerate-all"),
    ):
        if (root / program).exists():
            return (command,)
    return ("make the initramfs again, as this distribution does",)
