"""``archonctl ledger --unit`` on a real systemd: the last start of a unit, and nothing of the starts before it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.sdbox.box import Box

pytestmark = pytest.mark.systemd

CLI = Path(sys.executable).with_name("archonctl")
UNIT = "some-engine.service"


@pytest.fixture
def unit(box: Box) -> Iterator[str]:
    box.put("/srv/engine.sh", "#!/bin/sh\ncat /srv/engine.log\nexec sleep 600\n", "755")
    box.put(f"/run/systemd/system/{UNIT}", "[Service]\nExecStart=/srv/engine.sh\n")
    box("systemctl", "daemon-reload")
    yield UNIT
    box.run("systemctl", "stop", UNIT)
    box.run("rm", "-f", f"/run/systemd/system/{UNIT}", "/srv/engine.sh", "/srv/engine.log")
    box.run("systemctl", "daemon-reload")


def start(box: Box, tokens: str) -> None:
    box.put("/srv/engine.log", f"GPU KV cache size: {tokens} tokens\nINFO:     Application startup complete.\n")
    box("systemctl", "restart", UNIT)


def test_the_last_start_alone_is_read(box: Box, unit: str) -> None:
    assert box.run(CLI, "ledger", "--unit", unit).returncode == 5
    start(box, "11,111")
    start(box, "22,222")
    for name in (unit, unit.removesuffix(".service")):
        done = box.run(CLI, "ledger", "--unit", name, "--follow", "--timeout", "150", "--json")
        assert done.returncode == 0, done.stderr
        read = json.loads(done.stdout)
        assert read["boots"] == 1
        assert read["essentials"]["kv_tokens"]["value"] == 22222
    box("journalctl", "--sync")
    whole = json.loads(box(CLI, "ledger", "--unit", unit, "--json"))
    assert whole["essentials"]["kv_tokens"]["value"] == 22222
    assert whole["lines_read"] == 2


def test_a_unit_that_was_never_started_is_named(box: Box, unit: str) -> None:
    done = box.run(CLI, "ledger", "--unit", "no-such-engine")
    assert done.returncode == 5
    assert "unit-never-started" in done.stderr
