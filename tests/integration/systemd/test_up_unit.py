"""On a real systemd: a start is a unit, a refusal is not tried again, and nothing but ours is touched."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.sdbox.box import Box
from support.sdbox.endpoint import eventually

pytestmark = pytest.mark.systemd
UNIT = "archon-tiny.service"

Up = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def port() -> int:
    """The box has a network of its own: every port is free at first."""
    return 18000


@pytest.fixture
def up(box: Box, repository: Path, port: int) -> Iterator[Up]:
    """``up("serve", once=True)`` runs ``up`` over the fake engine inside the box."""

    def run(*words: str, timeout: float = 240, **options: object) -> subprocess.CompletedProcess[str]:
        return box.run(*argv(repository, port, *words, **options), timeout=timeout)

    yield run
    box.run("systemctl", "stop", UNIT)
    box.run("rm", "-rf", "/var/lib/archon", f"/run/systemd/system/{UNIT}", f"/run/systemd/system/{UNIT}.d")
    box.run("systemctl", "daemon-reload")
    box.run("systemctl", "reset-failed")


def argv(repository: Path, port: int, *words: str, **options: object) -> list[str]:
    chosen = json.dumps({"run_as": "auto"} | options)
    script = [sys.executable, "-m", "support.starts", "/var/lib/archon", str(port), uuid.uuid4().hex, chosen, *words]
    return ["env", f"PYTHONPATH={repository / 'tests'}:{repository / 'controller'}", *script]


def test_an_engine_that_holds_is_left_as_a_unit(box: Box, up: Up) -> None:
    done = up("serve", "--delay", "0.5")
    assert "ended running" in done.stdout, done.stdout + done.stderr
    shown = box.show(UNIT, "ActiveState", "MainPID", "NRestarts", "Restart", "FragmentPath", "DropInPaths")
    assert shown["ActiveState"] == "active"
    assert shown["NRestarts"] == "0"
    assert shown["Restart"] == "on-failure"
    assert shown["DropInPaths"] == ""
    assert shown["FragmentPath"] == f"/run/systemd/system/{UNIT}"
    assert "fake_engine.py" in box("cat", f"/proc/{shown['MainPID']}/cmdline")
    assert "listening on" in box("cat", "/var/lib/archon/tiny/boot.log")
    running = json.loads(box("cat", "/var/lib/archon/tiny/running.json"))
    assert (running["mode"], running["pid"]) == ("unit", int(shown["MainPID"]))


def test_nothing_of_ours_is_needed_for_it_to_serve(box: Box, up: Up) -> None:
    up("serve")
    eventually(lambda: box.run("pgrep", "-f", "journalctl|support.starts|guard.py").returncode, 1)


def test_systemctl_stop_stops_it_and_then_nothing_runs(box: Box, up: Up) -> None:
    up("serve")
    box("systemctl", "stop", UNIT)
    assert box.run("pgrep", "-f", "fake_engine").returncode == 1
    assert "ended running" in up("serve").stdout


def test_a_second_up_says_that_it_runs(up: Up) -> None:
    up("serve")
    assert "error already-running" in up("serve").stdout


def test_once_leaves_no_unit(box: Box, up: Up) -> None:
    assert "ended stopped" in up("serve", once=True).stdout
    assert box.show(UNIT, "LoadState", "ActiveState") == {"LoadState": "not-found", "ActiveState": "inactive"}


def test_a_verdict_that_does_not_hold_leaves_no_unit(box: Box, up: Up) -> None:
    assert "ended stopped" in up("serve", verdict="broken").stdout
    assert box.show(UNIT, "LoadState")["LoadState"] == "not-found"


@pytest.mark.parametrize(
    ("words", "code"),
    [(("crash",), "engine-exited-at-boot"), (("killed",), "engine-exited-at-boot"), (("silent",), "engine-silent")],
)
def test_a_refusing_engine_is_tried_once(box: Box, up: Up, words: tuple[str, ...], code: str) -> None:
    since = box("date", "+@%s")
    time.sleep(1.0)  # the journal is asked in whole seconds
    done = up(*words, timeout_s=2 if words == ("silent",) else 200)
    assert f"error {code}" in done.stdout, done.stdout + done.stderr
    time.sleep(0.5)
    assert box.show(UNIT, "LoadState")["LoadState"] == "not-found"
    assert box("journalctl", "-u", UNIT, "-o", "cat", "--since", since).count(f"Started {UNIT}") == 1


def test_what_a_refusing_engine_said_is_kept(box: Box, up: Up) -> None:
    up("crash")
    assert "invalid argument: --no-such-flag" in box("cat", "/var/lib/archon/tiny/boot.log")


def test_a_signal_while_it_is_probed_leaves_no_unit(box: Box, up: Up, repository: Path, port: int) -> None:
    script = 'out=$1; shift; "$@" >"$out" 2>&1 & pid=$!; ' + (
        'until grep -q probing "$out"; do sleep .05; done; kill -TERM $pid; wait $pid'
    )
    done = box.run("bash", "-c", script, "_", "/tmp/out", *argv(repository, port, "serve", probe_s=1000))
    assert done.returncode == 130, box("cat", "/tmp/out")
    assert box.show(UNIT, "LoadState")["LoadState"] == "not-found"
    assert box.run("pgrep", "-f", "fake_engine").returncode == 1


def test_a_unit_from_another_place_is_left_alone(box: Box, up: Up) -> None:
    box.put(f"/etc/systemd/system/{UNIT}", "[Service]\nExecStart=/bin/sleep 1000\n")
    box("systemctl", "daemon-reload")
    box("systemctl", "start", UNIT)
    try:
        assert "error unit-exists" in up("serve").stdout
        assert box.show(UNIT, "ActiveState")["ActiveState"] == "active"
        assert box.run("test", "-e", f"/run/systemd/system/{UNIT}").returncode == 1
    finally:
        box("systemctl", "stop", UNIT)
        box("rm", f"/etc/systemd/system/{UNIT}")
        box("systemctl", "daemon-reload")


def test_a_unit_that_systemd_started_anew_is_found_with_its_journal(box: Box, up: Up, repository: Path) -> None:
    up("serve")
    old = box.show(UNIT, "MainPID")["MainPID"]
    box("kill", "-9", old)

    def main_pid() -> str:
        shown = box.show(UNIT, "MainPID", "NRestarts")
        return shown["MainPID"] if shown["NRestarts"] == "1" and shown["MainPID"] not in ("0", old) else ""

    eventually(lambda: bool(main_pid()), True)
    new = main_pid()
    eventually(lambda: "listening on" in box("journalctl", f"_PID={new}", "-o", "cat", "--no-pager"), True)
    script = (
        "from pathlib import Path\n"
        "from archonctl.service.lookup import boot_log, find_running, stop\n"
        "from archonctl.service.state import EndpointState\n"
        "state = EndpointState(Path('/var/lib/archon'), 'tiny')\n"
        "found = find_running(state)\n"
        "print(found.pid, found.log == '', b'listening on' in boot_log(found))\n"
        "stop(state)\n"
        "print(find_running(state), state.recorded())\n"
    )
    out = box("env", f"PYTHONPATH={repository / 'controller'}", sys.executable, "-c", script)
    assert out.splitlines() == [f"{new} True True", "None None"]
    assert box.show(UNIT, "LoadState")["LoadState"] == "not-found"
