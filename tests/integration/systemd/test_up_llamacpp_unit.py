"""A real llama-server as a unit of a real systemd, started by the real command."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.sdbox.box import Box

pytestmark = [pytest.mark.systemd, pytest.mark.engine]
UNIT = "archon-small.service"
ENGINE = "/srv/engine/llama-server"

DECLARATION = """
[contract]
seqs = 2
len = 1024
[engine]
kind = "llamacpp"
version = "b11434"
binary = "{binary}"
[engine.knobs]
{knobs}
[engine.env]
WORDS = "a@b%h+d=e:f,g.h/i-j"
[model]
path = "/srv/model.gguf"
[host]
detect = true
[service]
user = "{user}"
listen = "127.0.0.1:18100"
"""

Up = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def model(box: Box, repository: Path) -> str:
    """A small model inside the box."""
    path = f"PYTHONPATH={repository / 'tests'}:{repository / 'controller'}"
    box("env", path, sys.executable, "-m", "support.tiny_gguf", "llama", "/srv/model.gguf")
    box.run("useradd", "--system", "--shell", "/usr/sbin/nologin", "archon")
    return "/srv/model.gguf"


@pytest.fixture(scope="module")
def engine(box: Box, llama_server: Path) -> str:
    """The engine where the unit's user may reach it, whatever folder of root's this repository lies in."""
    folder = llama_server.resolve().parent
    libraries = [str(path) for path in folder.glob("*.so*")]
    box("mkdir", "-p", str(Path(ENGINE).parent))
    box("cp", "-L", str(folder / "llama-server"), *libraries, str(Path(ENGINE).parent))
    return ENGINE


@pytest.fixture
def up(box: Box, model: str, engine: str) -> Iterator[Up]:
    """``up("--once", knobs="...", binary="...")`` runs the installed command inside the box."""

    def run(*words: str, binary: str = "", knobs: str = "", user: str = "archon") -> subprocess.CompletedProcess[str]:
        text = DECLARATION.format(binary=binary or engine, knobs=knobs, user=user)
        box.put("/srv/env/small.toml", text)
        command = Path(sys.executable).with_name("archonctl")
        return box.run(command, "up", "/srv/env/small.toml", "--json", *words, timeout=180)

    yield run
    box.run("systemctl", "stop", UNIT)
    box.run("rm", "-rf", "/var/lib/archon", f"/run/systemd/system/{UNIT}", f"/run/systemd/system/{UNIT}.d")
    box.run("systemctl", "daemon-reload")


def test_the_contract_holds_as_a_unit_and_systemctl_stops_it(box: Box, up: Up) -> None:
    done = up("--leg", "admission")
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["verdict"] == "holds"
    shown = box.show(UNIT, "ActiveState", "MainPID", "NRestarts", "Restart")
    assert (shown["ActiveState"], shown["NRestarts"], shown["Restart"]) == ("active", "0", "on-failure")
    assert box("stat", "-c", "%U", f"/proc/{shown['MainPID']}") == "archon"
    command = Path(sys.executable).with_name("archonctl")
    probed = box.run(command, "probe", "/srv/env/small.toml", "--leg", "admission", timeout=120)
    assert probed.returncode == 0, probed.stdout + probed.stderr
    box("systemctl", "stop", UNIT)
    assert box.run("pgrep", "-x", "llama-server").returncode == 1
    assert box.show(UNIT, "ActiveState", "Result") == {"ActiveState": "inactive", "Result": "success"}


def test_arguments_and_environment_arrive_as_declared(box: Box, up: Up) -> None:
    assert up("--leg", "ledger").returncode in (0, 3)
    up("--leg", "ledger", "--keep")
    pid = box.show(UNIT, "MainPID")["MainPID"]
    argv = json.loads(box("cat", "/var/lib/archon/small/releases/current/argv.json"))
    assert box("cat", f"/proc/{pid}/cmdline").split("\0")[:-1] == argv
    assert "WORDS=a@b%h+d=e:f,g.h/i-j" in box("cat", f"/proc/{pid}/environ").split("\0")


def test_stop_takes_the_unit_away(box: Box, up: Up) -> None:
    up("--leg", "ledger", "--keep")
    command = Path(sys.executable).with_name("archonctl")
    assert "stopped unit archon-small.service" in box(command, "stop", "/srv/env/small.toml")
    assert box.show(UNIT, "LoadState", "ActiveState") == {"LoadState": "not-found", "ActiveState": "inactive"}


def test_a_refusing_engine_is_started_once_and_named(box: Box, up: Up) -> None:
    box.put("/srv/llama-server", f'#!/bin/sh\nexec {ENGINE} "$@" --no-such-flag\n', "755")

    def starts() -> int:
        return box("journalctl", "-u", UNIT, "-o", "cat").count(f"Started {UNIT}")

    before = starts()
    done = up(binary="/srv/llama-server")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "engine-exited-at-boot" in done.stderr
    assert "--no-such-flag" in done.stderr
    assert starts() - before <= 1
    assert box.show(UNIT, "LoadState")["LoadState"] == "not-found"


def test_a_broken_contract_is_not_left_running(box: Box, up: Up) -> None:
    done = up("--force", knobs="ctx-size = 1024")
    assert done.returncode == 1, done.stdout + done.stderr
    assert json.loads(done.stdout)["verdict"] == "broken"
    assert box.run("pgrep", "-x", "llama-server").returncode == 1


def test_a_user_that_is_missing_is_refused_by_name(box: Box, up: Up) -> None:
    done = up(user="nobody-here")
    assert done.returncode in (1, 5), done.stdout + done.stderr
    assert "user" in done.stderr
    assert box.run("pgrep", "-x", "llama-server").returncode == 1
