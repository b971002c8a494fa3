"""The limit of pinned memory on machines as they are found."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from archonctl.errors import GateRefusal, UsageError
from archonctl.host.ttm import judge_ttm, pages_of, read_ttm
from archonctl.host.ttm_persist import propose, refuse_conflicts
from support.newc import cpio

RELEASE = "6.1.0-50-amd64"
FLOOR_MIB, FLOOR_PAGES = 150_200, 38_451_200


def put(root: Path, path: str, content: str | bytes) -> Path:
    place = root / path
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(content.encode() if isinstance(content, str) else content)
    return place


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """The archon host after a power failure: half of its RAM, nothing set."""
    put(tmp_path, "proc/meminfo", f"MemTotal:       {251_976 * 1024} kB\n")
    put(tmp_path, "proc/sys/kernel/osrelease", f"{RELEASE}\n")
    put(tmp_path, "sys/module/ttm/parameters/pages_limit", "32252928\n")
    return tmp_path


def codes(root: Path, floor_mib: int | None = None) -> dict[str, str]:
    """code -> place of every finding."""
    found = judge_ttm(read_ttm(root, 4096), root, floor_mib)
    return {finding.code: str(finding.place) for finding in found}


def messages(root: Path, floor_mib: int | None = None) -> str:
    return "\n".join(map(str, judge_ttm(read_ttm(root, 4096), root, floor_mib)))


def test_25_165_824_pages_are_exactly_96_gib() -> None:
    assert pages_of(96 * 1024, 4096) == 25_165_824
    assert pages_of(204_800, 4096) == 52_428_800
    assert pages_of(FLOOR_MIB, 4096) == FLOOR_PAGES
    assert pages_of(1, 65_536) == 16


def test_half_of_ram_is_short_now_and_again_after_the_next_boot(machine: Path) -> None:
    state = read_ttm(machine, 4096)
    assert (state.module, state.pages, state.limit_mib, state.next_pages) == ("ttm", 32_252_928, 125_988, None)
    assert set(codes(machine, FLOOR_MIB)) == {"ttm-cap-short", "ttm-not-persistent"}
    assert "125,988 MiB) now, 38,451,200 pages (150,200 MiB) are needed: 24,212 MiB short" in messages(
        machine, FLOOR_MIB
    )


def test_a_limit_that_holds_now_and_later_has_no_finding(machine: Path) -> None:
    put(machine, "sys/module/ttm/parameters/pages_limit", "52428800\n")
    put(machine, "etc/modprobe.d/ttm.conf", "options ttm pages_limit=52428800 page_pool_size=52428800\n")
    assert codes(machine, FLOOR_MIB) == {}
    assert read_ttm(machine, 4096).next_pages == 52_428_800


def test_0_is_not_judged_as_too_little(machine: Path) -> None:
    put(machine, "sys/module/ttm/parameters/pages_limit", "0\n")
    assert set(codes(machine, FLOOR_MIB)) == {"ttm-not-set-yet", "ttm-not-persistent"}


def test_neither_module_and_an_unreadable_limit(machine: Path) -> None:
    put(machine, "sys/module/ttm/parameters/pages_limit", "many\n")
    assert "ttm-unreadable" in codes(machine, FLOOR_MIB)
    (machine / "sys/module/ttm/parameters/pages_limit").unlink()
    assert codes(machine, FLOOR_MIB) == {"ttm-absent": ""}
    assert codes(machine) == {}


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("options ttm page_limit=25165824", "ttm-option-misspelt", "did you mean ttm.pages_limit?"),
        ("options ttm pageslimit=25165824", "ttm-option-misspelt", "did you mean ttm.pages_limit?"),
        ("options amdttm pagpage_pool_size=1", "ttm-option-misspelt", "amdttm.page_pool_size"),
        ("options amdgpu pages_limit=1", "ttm-option-deprecated", "amdgpu"),
        ("options tmm pages_limit=25165824", "ttm-option-misspelt", "did you mean ttm.pages_limit?"),
        ("options amdttm pages_limit=25165824", "ttm-option-wrong-module", "set it for ttm"),
        ("options amdgpu gttsize=131072", "ttm-option-deprecated", "remove it"),
        ("options ttm pages_limit=010", "ttm-option-invalid", "read as 8, for a leading zero means octal"),
        ("options ttm pages_limit=96G", "ttm-option-invalid", "no plain number"),
        ("options ttm pages_limit=103079215104", "ttm-option-invalid", "402,653,184 MiB, the machine has 251,976"),
    ],
)
def test_a_line_that_does_not_do_what_it_says(machine: Path, line: str, code: str, said: str) -> None:
    put(machine, "etc/modprobe.d/a.conf", f"\n# comment\n{line}\n")
    assert codes(machine)[code] == "/etc/modprobe.d/a.conf:3"
    assert said in messages(machine)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("proc/cmdline", "quiet ttm.page-limit=5 ro\n"),
        ("etc/default/grub", 'A=1\nGRUB_CMDLINE_LINUX_DEFAULT="quiet ttm.page_limit=5"\n'),
        ("etc/default/grub.d/x.cfg", "GRUB_CMDLINE_LINUX='ttm.page_limit=5'\n"),
        ("etc/kernel/cmdline", "root=UUID=x ttm.page_limit=5\n"),
        ("boot/loader/entries/a.conf", "title x\noptions root=x ttm.page_limit=5\n"),
        ("usr/lib/modprobe.d/a.conf", "options ttm \\\n  page_limit=5\n"),
    ],
)
def test_every_place_that_sets_an_option_is_read(machine: Path, path: str, text: str) -> None:
    put(machine, path, text)
    assert codes(machine)["ttm-option-misspelt"].startswith(f"/{path}:")


def test_other_modules_comments_and_masked_files_are_left_alone(machine: Path) -> None:
    put(
        machine,
        "etc/modprobe.d/a.conf",
        "options amdgpu ppfeaturemask=0xffffffff\noptions snd model=x\n# options ttm x=1\n",
    )
    put(machine, "usr/lib/modprobe.d/a.conf", "options ttm page_limit=1\n")
    put(machine, "proc/cmdline", "root=/dev/sda1 tsc.pages=1 quiet\n")
    assert codes(machine) == {}


def test_two_places_that_contradict_are_both_named(machine: Path) -> None:
    put(machine, "etc/modprobe.d/a.conf", "options ttm pages_limit=25165824\n")
    put(machine, "etc/default/grub", 'GRUB_CMDLINE_LINUX="ttm.pages_limit=27648000"\n')
    assert codes(machine)["ttm-options-conflict"] == "/etc/default/grub:1"
    assert "27648000 here and 25165824 at /etc/modprobe.d/a.conf:1" in messages(machine)
    assert read_ttm(machine, 4096).next_pages is None
    with pytest.raises(GateRefusal, match="set there already"):
        refuse_conflicts(read_ttm(machine, 4096))


def test_a_change_that_awaits_its_reboot_is_no_contradiction(machine: Path) -> None:
    put(machine, "proc/cmdline", "ttm.pages_limit=25165824\n")
    put(machine, "etc/default/grub", 'GRUB_CMDLINE_LINUX="ttm.pages_limit=52428800"\n')
    assert codes(machine, None) == {}


def test_a_line_that_is_newer_than_the_initramfs_with_the_module_is_stale(machine: Path) -> None:
    image = put(machine, f"boot/initrd.img-{RELEASE}", cpio("usr/lib/modules/x/kernel/drivers/gpu/drm/ttm/ttm.ko.xz"))
    line = put(machine, "etc/modprobe.d/a.conf", "options ttm pages_limit=25165824\n")
    put(machine, "usr/sbin/update-initramfs", "")
    os.utime(image, (1000, 1000))
    assert codes(machine)["ttm-initramfs-stale"] == "/etc/modprobe.d/a.conf:1"
    assert "update-initramfs -u" in messages(machine)
    os.utime(line, (500, 500))
    assert codes(machine) == {}
    os.utime(line, (2000, 2000))
    image.write_bytes(cpio("usr/lib/modules/x/kernel/fs/ext4/ext4.ko"))
    os.utime(image, (1000, 1000))
    assert codes(machine) == {}


def test_an_initramfs_that_cannot_be_looked_into_is_a_warning(machine: Path) -> None:
    image = put(machine, f"boot/initrd.img-{RELEASE}", b"no archive at all")
    put(machine, "etc/modprobe.d/a.conf", "options ttm pages_limit=25165824\n")
    os.utime(image, (1000, 1000))
    found = judge_ttm(read_ttm(machine, 4096), machine)
    assert [(finding.code, finding.severity) for finding in found] == [("ttm-initramfs-stale", "warning")]


def test_a_module_that_is_built_in_never_sees_modprobe(machine: Path) -> None:
    put(machine, f"lib/modules/{RELEASE}/modules.builtin", "kernel/drivers/gpu/drm/ttm/ttm.ko\n")
    put(machine, "etc/modprobe.d/a.conf", "options ttm pages_limit=25165824\n")
    assert set(codes(machine)) == {"ttm-built-in"}
    assert propose(read_ttm(machine, 4096), machine, 1000).new is None


def test_the_proposal_is_one_file_a_diff_and_the_steps_that_remain(machine: Path) -> None:
    put(machine, f"boot/initrd.img-{RELEASE}", cpio("lib/modules/x/ttm.ko"))
    put(machine, "etc/default/grub", "GRUB_CMDLINE_LINUX=\n")
    put(machine, "usr/sbin/update-grub", "")
    seen = propose(read_ttm(machine, 4096), machine, 204_800)
    assert seen.new is not None
    assert "options ttm pages_limit=52428800\n" in seen.new
    assert "+options ttm pages_limit=52428800" in seen.diff
    assert seen.loader.kind == "grub"
    assert seen.loader.steps[-1] == "update-grub"
    assert len(seen.steps) == 2  # the initramfs, then the reboot
    put(machine, "etc/modprobe.d/archon-ttm.conf", seen.new)
    again = propose(read_ttm(machine, 4096), machine, 204_800)
    assert again.diff == ""
    refuse_conflicts(read_ttm(machine, 4096))


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("run/ostree-booted", "ostree"),
        ("boot/efi/EFI/Linux/a.efi", "unified-image"),
        ("usr/sbin/grubby", "grubby"),
        ("etc/default/grub", "grub"),
        ("etc/kernel/cmdline", "systemd-boot"),
        ("nothing", "unknown"),
    ],
)
def test_each_boot_loader_is_known_by_its_files(machine: Path, path: str, kind: str) -> None:
    put(machine, path, "")
    seen = propose(read_ttm(machine, 4096), machine, 96 * 1024)
    assert seen.loader.kind == kind
    assert any("ttm.pages_limit=25165824" in step for step in seen.loader.steps)


def test_more_than_ram_allows_is_not_proposed(machine: Path) -> None:
    with pytest.raises(UsageError) as caught:
        propose(read_ttm(machine, 4096), machine, 226_779)
    assert caught.value.code == "ttm-target-over-ram"
    assert propose(read_ttm(machine, 4096), machine, 226_778).pages == 226_778 * 256


def test_an_empty_root_and_hostile_files_raise_nothing(tmp_path: Path) -> None:
    assert read_ttm(tmp_path).module == ""
    put(tmp_path, "etc/modprobe.d/a.conf", b"options ttm pages_limit=\xff\xfe\x00 \\\n")
    put(tmp_path, "proc/cmdline", b"ttm.pages_limit='unclosed \x00" + b"a.b=" * 1000)
    (tmp_path / "etc/default/grub").mkdir(parents=True)
    judge_ttm(read_ttm(tmp_path), tmp_path, 100)
