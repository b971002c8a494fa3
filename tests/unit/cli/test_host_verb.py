"""``archonctl host`` as the installed command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from archonctl.host.load import read_profile
from archonctl.host.profile import Host

AMD = {
    "proc/meminfo": f"MemTotal: {251_976 * 1024} kB\nMemAvailable: 1000000 kB\n",
    "proc/sys/kernel/hostname": "archon\n",
    "proc/sys/kernel/osrelease": "6.1.0\n",
    "sys/module/ttm/parameters/pages_limit": "32252928\n",
    "sys/class/drm/card1/device/mem_info_vram_total": str(31_856 << 20),
    "sys/class/drm/card1/device/mem_info_vram_used": str(300 << 20),
    "sys/class/drm/card1/device/vendor": "0x1002",
    "sys/class/drm/card1/device/device": "0x7551",
    "dev/kfd": "",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Another machine's files."""
    for name, text in AMD.items():
        path = tmp_path / "root" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "root"


def test_a_saved_profile_is_one_that_a_declaration_can_name(run_cli: Any, root: Path, tmp_path: Path) -> None:
    out = tmp_path / "box.toml"
    assert run_cli("host", "save", out, "--root", root).code == 0
    host = read_profile(out)
    assert isinstance(host, Host)
    assert (host.name, host.ram_mib, host.ttm_pages_limit, host.devices) == (
        "archon",
        251_976,
        32_252_928,
        ("/dev/kfd",),
    )
    assert (host.cards[0].total_mib, host.cards[0].free_mib, host.available_mib) == (31_856, None, None)
    again = run_cli("host", "save", out, "--root", root)
    assert (again.code, "host-file-exists" in again.stderr) == (5, True)
    assert run_cli("host", "save", tmp_path / "no" / "x.toml").code == 5
    assert "251976" in run_cli("host", "save", "-", "--root", root).stdout


def test_show_says_what_is_there(run_cli: Any, root: Path) -> None:
    said = run_cli("host", "show", "--root", root).stdout
    assert "251,976 MiB" in said
    assert "32,252,928 pages of 4 KiB = 125,988 MiB" in said
    assert "31,556 MiB free" in said


def test_the_limit_against_an_endpoint(run_cli: Any, root: Path) -> None:
    short = run_cli("host", "ttm", "archon", "--root", root)
    assert short.code == 1
    assert "ttm-cap-short" in short.stdout
    assert "24,212 MiB short" in short.stdout
    assert run_cli("host", "ttm", "--root", root).code == 0


def test_persist_shows_a_diff_and_writes_only_when_told_to(run_cli: Any, root: Path) -> None:
    file = root / "etc/modprobe.d/archon-ttm.conf"
    shown = run_cli("host", "ttm", "archon", "--persist", "--root", root)
    assert "+options ttm pages_limit=52428800" in shown.stdout
    assert not file.exists()
    wrote = run_cli("host", "ttm", "archon", "--persist", "--write", "--root", root, "--json")
    assert json.loads(wrote.stdout)["persist"]["written"] is True
    assert "options ttm pages_limit=52428800\n" in file.read_text()
    assert "says so already" in run_cli("host", "ttm", "archon", "--persist", "--root", root).stdout


def test_nothing_is_written_beside_a_line_that_says_something_else(run_cli: Any, root: Path) -> None:
    other = root / "etc/modprobe.d/ttm.conf"
    other.parent.mkdir(parents=True)
    other.write_text("options ttm pages_limit=25165824\n")
    refused = run_cli("host", "ttm", "archon", "--persist", "--write", "--root", root)
    assert (refused.code, "ttm-options-conflict" in refused.stderr) == (4, True)
    assert not (root / "etc/modprobe.d/archon-ttm.conf").exists()


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["ttm", "--write"], "ttm-write-what"),
        (["ttm", "--persist"], "ttm-no-target"),
        (["show", "--root", "/nonexistent"], "host-root-missing"),
        (["ttm", "--persist", "--target", "999999999"], "ttm-target-over-ram"),
        (["ttm", "--persist", "--target", "-5"], "ttm-no-target"),
    ],
)
def test_usage_that_makes_no_sense(run_cli: Any, words: list[str], code: str) -> None:
    done = run_cli("host", *words)
    assert done.code == 2
    assert code in done.stderr
