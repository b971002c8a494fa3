"""``archonctl watch`` as it is installed, in a terminal beside a real llama-server on a real systemd."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.sdbox.box import Box
from support.sdbox.endpoint import Applied, applied

pytestmark = [pytest.mark.systemd, pytest.mark.engine]

UNIT = "archon@watched.service"


@pytest.fixture(scope="module")
def endpoint(box: Box, repository: Path, llama_server: Path) -> Iterator[Applied]:
    """The box with an endpoint that was applied and holds."""
    with applied(box, repository, llama_server, "watched", 18230, "threads = 1, metrics = true") as found:
        yield found


@pytest.fixture
def running(endpoint: Applied) -> Box:
    """The box that it runs in."""
    return endpoint.box


def watched(endpoint: Applied, size: tuple[int, int], wanted: str, *how: str) -> dict[str, Any]:
    """The screen once it has a text, and how ``q`` left it."""
    words = [*map(str, size), wanted, "q", *how, "/usr/bin/archonctl", "watch"]
    found: dict[str, Any] = json.loads(endpoint.module("terminal", *words))
    if folder := os.environ.get("ARCHON_TEST_FRAMES"):  # to be looked at
        (Path(folder) / f"{size[0]}x{size[1]}-{wanted[:12]}.txt".replace(" ", "_")).write_text(found["screen"])
    return found


@pytest.mark.parametrize("size", [(80, 24), (40, 12)])
def test_an_endpoint_that_holds_is_seen_and_q_leaves(endpoint: Applied, size: tuple[int, int]) -> None:
    found = watched(endpoint, size, "▸ watched   ✓ holds")
    assert (found["exit"], found["restored"]) == (0, True)


def test_nobody_may_watch_too_and_sees_the_engine(endpoint: Applied) -> None:
    found = watched(endpoint, (100, 30), "0 running, 0 waiting", "setpriv", "--reuid=65534", "--clear-groups")
    screen = found["screen"]
    assert "1,024 live, +0.0%" in screen
    assert "unit      active" in screen
    assert "█ weights" in screen, "the plan of the memory is not drawn"


def test_an_engine_that_hangs_is_named_and_nothing_else_hangs(endpoint: Applied, running: Box) -> None:
    pid = running.show(UNIT, "MainPID")["MainPID"]
    running("kill", "-STOP", pid)
    try:
        found = watched(endpoint, (80, 24), "the engine has not answered")
        assert (found["exit"], found["restored"]) == (0, True)
        assert "✓ holds" in watched(endpoint, (80, 24), "✓ holds")["screen"]
    finally:
        running("kill", "-CONT", pid)


def test_one_look_is_a_value_for_tools(running: Box) -> None:
    done = running.run("/usr/bin/archonctl", "watch", "watched", "--json")
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)["endpoints"]
    assert (found["verdict"], found["live_tokens"], found["running"], found["blind"]) == ("holds", 1024, 0, [])
    text = running("/usr/bin/archonctl", "watch")
    assert "✓ holds" in text or "+ holds" in text


def test_an_endpoint_that_is_down_is_seen(endpoint: Applied, running: Box) -> None:
    running("systemctl", "stop", UNIT)
    found = watched(endpoint, (80, 24), "nothing runs")
    assert "✗ down" in found["screen"]
    assert running.run("/usr/bin/archonctl", "watch", "--once").returncode == 1
