"""This machine from a fake /proc and /sys: what makes no sense is unknown, never 0."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from archonctl.host.detect import detect_host
from archonctl.host.profile import Host

MEMINFO = "MemTotal:       257999999 kB\nMemFree:         1000 kB\nMemAvailable:   200000000 kB\nHugePages_Total: 0\n"
GIB = 1 << 30


def tree(root: Path, files: dict[str, str | bytes]) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return root


def detect(root: Path, files: dict[str, str | bytes]) -> Host:
    return detect_host(tree(root, files), page_bytes=4096)


def test_an_empty_machine_is_unknown_everywhere(tmp_path: Path) -> None:
    host = detect(tmp_path, {})
    assert host == Host(source="sysfs", notes=host.notes)
    assert host.notes == ("/proc/meminfo: not there",)


def test_ram_is_read_in_mib_rounded_down(tmp_path: Path) -> None:
    host = detect(tmp_path, {"proc/meminfo": MEMINFO, "proc/sys/kernel/hostname": "archon\n"})
    assert (host.name, host.source, host.page_bytes) == ("archon", "sysfs", 4096)
    assert (host.ram_mib, host.available_mib) == (251_953, 195_312)
    assert host.cards == ()
    assert host.notes == ()


@pytest.mark.parametrize(
    ("text", "ram", "available"),
    [
        ("", None, None),
        ("MemTotal: 4096000\nMemAvailable: x kB\n", None, None),
        ("MemTotal: 0 kB\nMemAvailable: 0 kB\n", None, 0),
        ("MemTotal: -4096 kB\n", None, None),
        ("MemTotal: 4096000 kB\n", 4000, None),
        ("MemTotal: 4096000 kB\nMemAvailable: 8192000 kB\n", 4000, None),
        ("MemTotal: 99999999999999999999999 kB\nMemAvailable: 1024 kB\n", None, 1),
    ],
)
def test_malformed_meminfo_is_unknown_and_named(
    tmp_path: Path, text: str, ram: int | None, available: int | None
) -> None:
    host = detect(tmp_path, {"proc/meminfo": text})
    assert (host.ram_mib, host.available_mib) == (ram, available)
    assert any("/proc/meminfo: " in note for note in host.notes)


def test_a_group_of_version_2_is_limited_by_itself_and_by_all_above_it(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {
        "proc/self/cgroup": "0::/system.slice/archon.service\n",
        "sys/fs/cgroup/system.slice/archon.service/memory.max": "max\n",
        "sys/fs/cgroup/system.slice/memory.max": f"{8 * GIB}\n",
    }
    assert detect(tmp_path, files).cgroup_limit_mib == 8192
    files["sys/fs/cgroup/system.slice/archon.service/memory.max"] = f"{4 * GIB}\n"
    assert detect(tmp_path, files).cgroup_limit_mib == 4096
    files["sys/fs/cgroup/memory.max"] = f"{2 * GIB}\n"
    assert detect(tmp_path, files).cgroup_limit_mib == 2048


def test_no_limit_is_unknown_not_zero(tmp_path: Path) -> None:
    host = detect(tmp_path, {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n"})
    assert host.cgroup_limit_mib is None
    files = {
        "proc/self/cgroup": "4:memory:/a\n",
        "sys/fs/cgroup/memory/a/memory.limit_in_bytes": "9223372036854771712\n",
    }
    assert detect(tmp_path, dict(files)).cgroup_limit_mib is None


def test_a_group_of_version_1_whose_path_belongs_to_the_hosts_view_falls_back_to_the_mount(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {
        "proc/self/cgroup": "12:cpu,cpuacct:/x\n4:memory:/docker/0123\n1:name=systemd:/docker/0123\n0::/docker/0123\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{3 * GIB}\n",
    }
    assert detect(tmp_path, files).cgroup_limit_mib == 3072


@pytest.mark.parametrize("limit", ["", "garbage", "0", "-1", "1e9", "4096", "9" * 400])
def test_a_senseless_limit_is_unknown_and_named(tmp_path: Path, limit: str) -> None:
    host = detect(tmp_path, {"proc/self/cgroup": "0::/../..\n", "sys/fs/cgroup/memory.max": limit})
    assert host.cgroup_limit_mib is None
    assert any("memory.max" in note for note in host.notes)


def test_the_ttm_limit_is_read_in_pages(tmp_path: Path) -> None:
    assert detect(tmp_path, {"sys/module/ttm/parameters/pages_limit": "32252928\n"}).ttm_pages_limit == 32_252_928
    both: dict[str, str | bytes] = {"sys/module/amdttm/parameters/pages_limit": "52428800\n"}
    assert detect(tmp_path, both).ttm_pages_limit == 52_428_800


@pytest.mark.parametrize("text", ["0\n", "", "x", "-5", "18446744073709551616"])
def test_a_ttm_limit_that_no_driver_has_set_is_unknown(tmp_path: Path, text: str) -> None:
    host = detect(tmp_path, {"sys/module/ttm/parameters/pages_limit": text})
    assert host.ttm_pages_limit is None
    assert any("pages_limit" in note for note in host.notes)


def card(number: int, total: str, used: str) -> dict[str, str | bytes]:
    device = f"sys/class/drm/card{number}/device"
    return {
        f"{device}/mem_info_vram_total": total,
        f"{device}/mem_info_vram_used": used,
        f"{device}/vendor": "0x1002\n",
        f"{device}/device": "0x7551\n",
    }


def test_amd_cards_are_listed_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    files = card(10, f"{16 * GIB}\n", f"{GIB}\n") | card(2, f"{31856 << 20}\n", "0\n")
    files |= {"sys/class/drm/card3/device/vendor": "0x10de\n", "sys/class/drm/card2-DP-1/status": "connected\n"}
    host = detect(tmp_path, files)
    assert [(c.index, c.name, c.total_mib, c.free_mib) for c in host.cards] == [
        (0, "card2 AMD Radeon AI PRO R9700", 31_856, 31_856),
        (1, "card10 AMD 0x7551", 16_384, 15_360),
    ]


@pytest.mark.parametrize(
    ("total", "used", "found", "noted"),
    [
        ("0", "0", [], "mem_info_vram_total: 0 bytes is no card's memory"),
        ("-1", "0", [], "'-1' is no whole number"),
        ("", "0", [], "mem_info_vram_total"),
        ("17179869184", "17179869185", [(16_384, None)], "mem_info_vram_used: 17,179,869,185 bytes used of"),
        ("17179869184", "-5", [(16_384, None)], "mem_info_vram_used"),
    ],
)
def test_senseless_card_figures_are_refused_by_name(
    tmp_path: Path, total: str, used: str, found: list[tuple[int, int | None]], noted: str
) -> None:
    host = detect(tmp_path, card(0, total, used))
    assert [(c.total_mib, c.free_mib) for c in host.cards] == found
    assert any(noted in note for note in host.notes)


def test_nvidia_cards_are_said_not_guessed(tmp_path: Path) -> None:
    host = detect(tmp_path, {"proc/driver/nvidia/gpus/0000:01:00.0/information": "Model: X\n"})
    assert host.cards == ()
    assert any("1 NVIDIA card" in note for note in host.notes)


def test_a_directory_where_a_file_belongs_is_unknown(tmp_path: Path) -> None:
    (tmp_path / "proc/meminfo").mkdir(parents=True)
    (tmp_path / "sys/class").mkdir(parents=True)
    (tmp_path / "sys/class/drm").write_text("")
    assert detect(tmp_path, {}).ram_mib is None


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(st.lists(st.binary(max_size=40), min_size=6, max_size=6))
def test_no_bytes_in_any_file_raise_or_become_zero(tmp_path: Path, contents: list[bytes]) -> None:
    names = [
        "proc/meminfo",
        "proc/self/cgroup",
        "sys/fs/cgroup/memory.max",
        "sys/module/ttm/parameters/pages_limit",
        "sys/class/drm/card0/device/mem_info_vram_total",
        "sys/class/drm/card0/device/mem_info_vram_used",
    ]
    host = detect(tmp_path, dict(zip(names, contents, strict=True)))
    assert 0 not in (host.ram_mib, host.cgroup_limit_mib, host.ttm_pages_limit)
    assert all(c.total_mib > 0 for c in host.cards)


def test_this_very_machine_has_ram() -> None:
    host = detect_host()
    assert host.ram_mib is not None
    assert host.ram_mib > 0
