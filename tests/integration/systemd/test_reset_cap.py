"""The night of 6,919 restarts, on a real systemd: a TTM limit that a reboot reset is raised, or refused once."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.sdbox.box import Box, equip, install, seen, why_no_box
from support.sdbox.endpoint import eventually

pytestmark = [pytest.mark.systemd, pytest.mark.engine]

CLI = Path(sys.executable).with_name("archonctl")
UNIT = "archon@cap.service"
LIMIT = "/sys/module/ttm/parameters/pages_limit"
DECLARATION = """
[contract]
seqs = 1
len = 256
[engine]
kind = "llamacpp"
version = "b11434"
binary = "/srv/cap/llama-server"
knobs = { threads = 1 }
[model]
path = "/srv/cap/model.gguf"
[service]
user = "archon"
listen = "127.0.0.1:18300"
"""
FLOOR_MIB = 2 * 512 + 100 + 50 + 26
PREFLIGHT = f"""\
FORMAT=1
ENDPOINT=cap
RANKS=2
HOST_POOL_MIB=512
NGRAM_TABLE_MIB=100
PREFIX_CACHE_MIB=50
MAX_NUM_BATCHED_TOKENS=26
TTM_TARGET_MIB={FLOOR_MIB + 100}
"""
PAGES_IN_MIB = 256


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory, repository: Path, llama_server: Path) -> Iterator[Box]:
    """A box of its own with a stand-in for /sys/module, in which ttm has a limit like the kernel's."""
    if why := why_no_box():
        pytest.skip(f"no systemd box: {why}")
    folder = tmp_path_factory.mktemp("cap")
    (folder / "module/ttm/parameters").mkdir(parents=True)
    (folder / "module/ttm/parameters/pages_limit").write_text("1000\n")
    engine = llama_server.resolve().parent
    binds = seen(repository, engine)
    box = Box(folder / f"cap-{os.getpid()}", binds, {"SDBOX_SYSMODULE": str(folder / "module")}).up()
    try:
        install(box, CLI)
        equip(box, repository, llama_server, "/srv/cap")
        path = f"PYTHONPATH={repository / 'tests'}:{repository / 'controller'}"
        box.put("/etc/archon/cap.toml", DECLARATION)
        words = (sys.executable, "-m", "support.place_release", "/etc/archon/cap.toml")
        box("env", path, f"PREFLIGHT_TEXT={PREFLIGHT}", *words)
        box("systemctl", "daemon-reload")
        yield box
    finally:
        box.down()


@pytest.fixture(autouse=True)
def reset(host: Box) -> Iterator[None]:
    """The limit as a reboot leaves it."""
    yield
    host.run("systemctl", "stop", UNIT)
    host.run("systemctl", "reset-failed")
    host.run("umount", LIMIT)
    host("sh", "-c", f"echo 1000 >{LIMIT}")


def journal(host: Box) -> str:
    return host("journalctl", "-u", UNIT, "-o", "cat", "--no-pager")


def test_a_reset_limit_is_raised_and_the_endpoint_serves(host: Box) -> None:
    done = host.run("systemctl", "start", UNIT, timeout=120)
    assert done.returncode == 0, journal(host)
    assert int(host("cat", LIMIT)) == (FLOOR_MIB + 100) * PAGES_IN_MIB
    shown = host.show(UNIT, "ActiveState", "NRestarts", "User", "StatusText")
    assert (shown["ActiveState"], shown["NRestarts"], shown["User"]) == ("active", "0", "archon")
    assert shown["StatusText"].startswith("holds")


def test_a_limit_that_cannot_be_raised_is_refused_once_by_name_and_never_again(host: Box) -> None:
    host("sh", "-c", f"mount --bind {LIMIT} {LIMIT} && mount -o remount,bind,ro {LIMIT}")
    done = host.run("systemctl", "start", UNIT, timeout=120)
    assert done.returncode == 1
    time.sleep(2)  # what once was tried 6,919 times in 20 hours is tried no more, however long one waits
    shown = host.show(UNIT, "ActiveState", "SubState", "NRestarts", "Result", "ExecMainStatus")
    assert (shown["ActiveState"], shown["NRestarts"], shown["ExecMainStatus"]) == ("failed", "0", "78")
    said = journal(host)
    assert "refused: ttm-cap-not-raised" in said
    assert f"need {FLOOR_MIB} MiB ({FLOOR_MIB * PAGES_IN_MIB} pages)" in said
    assert "archonctl explain ttm-cap-not-raised" in said
    assert host.run("pgrep", "-x", "llama-server").returncode == 1
    alert = ["journalctl", "-u", "archon-failed@cap.service", "-p", "alert", "-o", "cat", "--no-pager"]
    eventually(lambda: "ttm-cap-not-raised (final)" in host(*alert), True)


def test_a_limit_above_the_floor_is_left_alone(host: Box) -> None:
    more = (FLOOR_MIB + 5000) * PAGES_IN_MIB
    host("sh", "-c", f"echo {more} >{LIMIT}")
    assert host.run("systemctl", "start", UNIT, timeout=120).returncode == 0, journal(host)
    assert int(host("cat", LIMIT)) == more


@pytest.mark.parametrize("damage", ["FORMAT=1\n", "", "FORMAT=1\nENDPOINT=cap\nRANKS=2", "; rm -rf /\n"])
def test_a_damaged_preflight_file_starts_nothing(host: Box, damage: str) -> None:
    place = "/var/lib/archon/cap/releases/current/preflight.env"
    try:
        host.put(place, damage)
        assert host.run("systemctl", "start", UNIT, timeout=120).returncode == 1
        assert host.show(UNIT, "ActiveState", "NRestarts") == {"ActiveState": "failed", "NRestarts": "0"}
        assert int(host("cat", LIMIT)) == 1000
    finally:
        host.put(place, PREFLIGHT)
