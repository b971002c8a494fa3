"""``archonctl watch`` as it is installed, in a terminal beside a real llama-server on a real systemd."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.sdbox.box import Box, equip, install

pytestmark = [pytest.mark.systemd, pytest.mark.engine]

CLI = Path(sys.executable).with_name("archonctl")
UNIT = "archon@watched.service"
DECLARATION = """
[contract]
seqs = 2
len = 512
[engine]
kind = "llamacpp"
version = "b11434"
binary = "/srv/watched/llama-server"
knobs = { threads = 1, metrics = true }
[model]
path = "/srv/watched/model.gguf"
[service]
user = "archon"
listen = "127.0.0.1:18230"
load_timeout_s = 60
"""


@pytest.fixture(scope="module")
def running(box: Box, repository: Path, llama_server: Path) -> Iterator[Box]:
    """The box with an endpoint that was applied and holds."""
    install(box, CLI)
    equip(box, repository, llama_server, "/srv/watched")
    box.put("/etc/archon/watched.toml", DECLARATION)
    done = box.run("/usr/bin/archonctl", "apply", "/etc/archon/watched.toml", "--yes", timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    yield box
    box.run("systemctl", "stop", UNIT)
    box.run(
        "rm",
        "-rf",
        f"/etc/systemd/system/{UNIT}.d",
        "/srv/watched",
        "/var/lib/archon/watched",
        "/etc/archon/watched.toml",
    )
    box.run(CLI, "install", "--uninstall", timeout=60)


def watched(box: Box, repository: Path, size: tuple[int, int], wanted: str, *how: str) -> dict[str, Any]:
    """The screen once it has a text, and how ``q`` left it."""
    path = f"PYTHONPATH={repository / 'tests'}:{repository / 'controller'}"
    words = [
        sys.executable,
        "-m",
        "support.terminal",
        *map(str, size),
        wanted,
        "q",
        *how,
        "/usr/bin/archonctl",
        "watch",
    ]
    found: dict[str, Any] = json.loads(box("env", path, *words, timeout=120))
    if folder := os.environ.get("ARCHON_TEST_FRAMES"):  # to be looked at
        (Path(folder) / f"{size[0]}x{size[1]}-{wanted[:12]}.txt".replace(" ", "_")).write_text(found["screen"])
    return found


@pytest.mark.parametrize("size", [(80, 24), (40, 12)])
def test_an_endpoint_that_holds_is_seen_and_q_leaves(running: Box, repository: Path, size: tuple[int, int]) -> None:
    found = watched(running, repository, size, "▸ watched   ✓ holds")
    assert (found["exit"], found["restored"]) == (0, True)


def test_nobody_may_watch_too_and_sees_the_engine(running: Box, repository: Path) -> None:
    found = watched(
        running, repository, (100, 30), "0 running, 0 waiting", "setpriv", "--reuid=65534", "--clear-groups"
    )
    screen = found["screen"]
    assert "1,024 live, +0.0%" in screen
    assert "unit      active" in screen
    assert "█ weights" in screen, "the plan of the memory is not drawn"


def test_an_engine_that_hangs_is_named_and_nothing_else_hangs(running: Box, repository: Path) -> None:
    pid = running.show(UNIT, "MainPID")["MainPID"]
    running("kill", "-STOP", pid)
    try:
        found = watched(running, repository, (80, 24), "the engine has not answered")
        assert (found["exit"], found["restored"]) == (0, True)
        assert "✓ holds" in watched(running, repository, (80, 24), "✓ holds")["screen"]
    finally:
        running("kill", "-CONT", pid)


def test_one_look_is_a_value_for_tools(running: Box) -> None:
    done = running.run("/usr/bin/archonctl", "watch", "watched", "--json")
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)["endpoints"]
    assert (found["verdict"], found["live_tokens"], found["running"], found["blind"]) == ("holds", 1024, 0, [])
    text = running("/usr/bin/archonctl", "watch")
    assert "✓ holds" in text or "+ holds" in text


def test_an_endpoint_that_is_down_is_seen(running: Box, repository: Path) -> None:
    running("systemctl", "stop", UNIT)
    found = watched(running, repository, (80, 24), "nothing runs")
    assert "✗ down" in found["screen"]
    assert running.run("/usr/bin/archonctl", "watch", "--once").returncode == 1
