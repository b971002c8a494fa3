"""The restart policy under other versions of systemd as process 1: 254 and 257, which know RestartSteps=."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.sdbox.box import Box, equip, seen, why_no_box

pytestmark = [pytest.mark.systemd, pytest.mark.engine, pytest.mark.optional]

CLI = Path(sys.executable).with_name("archonctl")
UNIT = "archon@other.service"
DECLARATION = """
[contract]
seqs = 1
len = 512
[engine]
kind = "llamacpp"
version = "b11434"
binary = "/srv/other/{binary}"
knobs = {{ threads = 1 }}
[model]
path = "/srv/other/model.gguf"
[service]
listen = "127.0.0.1:18700"
"""


@pytest.fixture(scope="module", params=["254", "257"])
def box(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, repository: Path, llama_server: Path
) -> Iterator[Box]:
    """A box whose process 1 is that version, with archonctl installed."""
    folder = Path(os.environ.get("ARCHON_TEST_SYSTEMD") or Path.home() / ".cache/archonctl/systemd") / request.param
    if why := why_no_box():
        pytest.skip(f"no systemd box: {why}")
    if not folder.is_dir():
        pytest.skip(f"no systemd {request.param}: run scripts/get-systemd")
    place = tmp_path_factory.mktemp(f"systemd-{request.param}")
    shutil.copytree(folder, place / "upper/u", symlinks=True)
    engine = llama_server.resolve().parent
    binds = seen(repository, engine)
    box = Box(place / f"box-{os.getpid()}", binds, {"SDBOX_UPPER": str(place / "upper")}).up()
    try:
        assert box("systemctl", "--version").startswith(f"systemd {request.param} ")
        box(CLI, "install", timeout=120)
        equip(box, repository, llama_server, "/srv/other")
        yield box
    finally:
        box.down()


def journal(box: Box) -> str:
    return box("journalctl", "-u", UNIT, "-n", "60", "-o", "cat", "--no-pager")


def settled(box: Box) -> dict[str, str]:
    end = time.monotonic() + 180
    while time.monotonic() < end:
        shown = box.show(UNIT, "ActiveState", "NRestarts", "RestartUSecNext", "ExecMainStatus")
        if shown["ActiveState"] in ("active", "failed", "inactive"):
            return shown
        time.sleep(0.1)
    pytest.fail(journal(box))


def test_the_policy_is_the_same_and_the_delay_grows(box: Box) -> None:
    units = ["archon@x.service", "archon-verify@x.service", "archon-verify@x.timer", "archon-failed@x.service"]
    units += ["archon-exporter.service", "archon-guard@x.service"]
    verified = box.run("systemd-analyze", "verify", "--man=no", *units)
    assert (verified.returncode, verified.stderr.strip()) == (0, "")
    shown = box.show("archon@x.service", "RestartUSec", "RestartSteps", "RestartMaxDelayUSec", "StartLimitBurst")
    assert shown == {
        "RestartUSec": "15s",
        "RestartSteps": "4",
        "RestartMaxDelayUSec": "5min",
        "StartLimitBurst": "5",
    }

    box.put("/etc/archon/other.toml", DECLARATION.format(binary="llama-server"))
    done = box.run("/usr/bin/archonctl", "apply", "other", "--yes", timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr + journal(box)

    # crashes: five tries, each later than the one before
    box.put("/srv/other/crash", "#!/bin/sh\nkill -SEGV $$\n", "755")
    box.put("/etc/archon/other.toml", DECLARATION.format(binary="crash"))
    quick = "[Service]\nRestartSec=10ms\nRestartMaxDelaySec=160ms\n"
    box.put(f"/etc/systemd/system/{UNIT}.d/90-quick.conf", quick)
    assert box.run("/usr/bin/archonctl", "apply", "other", "--yes", "--no-rollback", timeout=120).returncode == 1
    # the tries of the apply count towards the limit as well, as many as there were time for
    box("sh", "-c", f"systemctl stop {UNIT}; systemctl reset-failed {UNIT} || true")
    box.run("systemctl", "start", UNIT, timeout=60)
    end = time.monotonic() + 180
    # from 254 the active state is "failed" between two tries as well; only the sub-state tells the end from them
    while box.show(UNIT, "SubState")["SubState"] != "failed" and time.monotonic() < end:
        time.sleep(0.1)
    shown = settled(box)
    assert (shown["ActiveState"], shown["NRestarts"]) == ("failed", "5"), journal(box)
    assert shown["RestartUSecNext"] == "160ms"
