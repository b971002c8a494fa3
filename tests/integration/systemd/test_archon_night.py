"""The archon endpoint from its shipped declaration, applied on a real systemd: the night of 6,919 restarts, replayed.

The engine is the radiance simulator; what the host shows of memory and devices stands in for two cards and 246 GiB.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.sdbox.archon_host import LIMIT, PAGES_IN_MIB, RESET_MIB, UNIT, archon_host, declare
from support.sdbox.box import Box, why_no_box

pytestmark = pytest.mark.systemd

FLOOR_MIB, TARGET_MIB = 150_200, 204_800


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Iterator[Box]:
    """The archon host after a power failure."""
    if why := why_no_box():
        pytest.skip(f"no systemd box: {why}")
    with archon_host(tmp_path_factory.mktemp("night"), repository) as box:
        yield box


def apply(box: Box, *words: str) -> subprocess.CompletedProcess[str]:
    return box.run("/usr/bin/archonctl", "apply", "/etc/archon/archon.toml", "--yes", "--json", *words, timeout=240)


def journal(box: Box) -> str:
    return box("journalctl", "-u", UNIT, "-o", "cat", "--no-pager")


def reset(box: Box) -> None:
    """What a power failure does to the limit."""
    box("sh", "-c", f"echo {RESET_MIB * PAGES_IN_MIB} >{LIMIT}")


def test_the_reset_limit_is_raised_to_its_target_and_three_times_200_000_are_served(host: Box) -> None:
    done = apply(host)
    assert done.returncode == 0, done.stdout + done.stderr + journal(host)
    assert int(host("cat", LIMIT)) == TARGET_MIB * PAGES_IN_MIB == 52_428_800
    said = journal(host)
    assert f"raised: {RESET_MIB * PAGES_IN_MIB} -> {TARGET_MIB * PAGES_IN_MIB} pages" in said
    assert f"need {FLOOR_MIB} MiB" in said
    shown = host.show(UNIT, "ActiveState", "NRestarts", "StatusText", "MainPID")
    assert (shown["ActiveState"], shown["NRestarts"]) == ("active", "0")
    assert shown["StatusText"].startswith("holds: 600,000 KV tokens of 600,000")
    assert "radiance" in host("cat", f"/proc/{shown['MainPID']}/cmdline")
    assert host("stat", "-c", "%U", f"/proc/{shown['MainPID']}") == "archon"


def test_after_a_reboot_of_the_limit_systemd_alone_brings_it_back(host: Box) -> None:
    host("systemctl", "stop", UNIT)
    reset(host)
    done = host.run("systemctl", "start", UNIT, timeout=240)
    assert done.returncode == 0, journal(host)
    assert int(host("cat", LIMIT)) == TARGET_MIB * PAGES_IN_MIB


def test_a_reset_under_a_running_engine_is_drift_before_the_next_start_needs_it(host: Box) -> None:
    reset(host)
    done = host.run("/usr/bin/archonctl", "drift", "archon", "--json")
    assert done.returncode == 8, done.stdout + done.stderr
    caps = [row for row in json.loads(done.stdout)["endpoints"][0]["findings"] if row["code"] == "drift-cap"]
    assert f"expected {TARGET_MIB * PAGES_IN_MIB}, found {RESET_MIB * PAGES_IN_MIB}" in caps[0]["message"]


def test_it_is_watched_with_the_plan_of_both_cards_its_load_and_its_drift(host: Box, repository: Path) -> None:
    path = f"PYTHONPATH={repository / 'tests'}:{repository / 'controller'}"
    words = [sys.executable, "-m", "support.terminal", "100", "30", "0 running", "q", "/usr/bin/archonctl", "watch"]
    found = json.loads(host("env", path, *words, timeout=120))
    if folder := os.environ.get("ARCHON_TEST_FRAMES"):  # to be looked at
        (Path(folder) / "night.txt").write_text(found["screen"])
    assert (found["exit"], found["restored"]) == (0, True)
    for text in (" card 0 [█", " card 1 [█", "600,000 live, +0.0%", "[drift-cap]", "3 x 200,000"):
        assert text in found["screen"], found["screen"]


def test_an_apply_raises_it_under_the_running_engine_and_restarts_nothing(host: Box) -> None:
    # the unit's own start has a verdict since the apply, and is not of the history yet
    assert apply(host).returncode == 0
    reset(host)
    before = host.show(UNIT, "MainPID", "InvocationID")
    done = apply(host)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["outcome"] == "unchanged"
    assert int(host("cat", LIMIT)) == TARGET_MIB * PAGES_IN_MIB
    assert host.show(UNIT, "MainPID", "InvocationID") == before
    assert "drift-cap" not in host.run("/usr/bin/archonctl", "drift", "archon").stdout
    reset(host)
    host("sh", "-c", f"mount --bind {LIMIT} {LIMIT} && mount -o remount,bind,ro {LIMIT}")
    try:
        refused = apply(host)
        assert (refused.returncode, "ttm-cap-not-raised" in refused.stderr) == (5, True)
        assert host.show(UNIT, "MainPID", "InvocationID") == before
    finally:
        host("umount", LIMIT)
        assert apply(host).returncode == 0


def test_a_limit_that_cannot_be_raised_is_one_refusal_with_its_name_and_no_restart(host: Box) -> None:
    host("systemctl", "stop", UNIT)
    reset(host)
    host("sh", "-c", f"mount --bind {LIMIT} {LIMIT} && mount -o remount,bind,ro {LIMIT}")
    try:
        started = journal(host).count("radiance SIMULATOR")
        assert host.run("systemctl", "start", UNIT, timeout=120).returncode == 1
        time.sleep(3)
        shown = host.show(UNIT, "ActiveState", "NRestarts", "ExecMainStatus")
        assert shown == {"ActiveState": "failed", "NRestarts": "0", "ExecMainStatus": "78"}
        said = journal(host)
        assert "refused: ttm-cap-not-raised" in said
        assert f"have {RESET_MIB} MiB ({RESET_MIB * PAGES_IN_MIB} pages), need {FLOOR_MIB} MiB" in said
        assert said.count("radiance SIMULATOR") == started
    finally:
        host("umount", LIMIT)


def test_what_the_first_boot_had_is_refused_before_the_running_engine_is_touched(host: Box, repository: Path) -> None:
    host.run("systemctl", "reset-failed", UNIT)
    host("systemctl", "start", UNIT, timeout=240)
    pid = host.show(UNIT, "MainPID")["MainPID"]
    declare(host, repository, "44_928")
    try:
        done = apply(host)
        assert done.returncode == 4, done.stdout + done.stderr
        assert "contract-short" in done.stdout + done.stderr
        assert json.loads(done.stdout or "{}") is not None
        assert host.show(UNIT, "MainPID", "ActiveState") == {"MainPID": pid, "ActiveState": "active"}
    finally:
        declare(host, repository)
