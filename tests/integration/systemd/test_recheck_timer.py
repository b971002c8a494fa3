"""The timer that verifies an endpoint again, on a real systemd and llama-server: what it does, and whom it calls."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.sdbox.box import Box
from support.sdbox.endpoint import Applied, applied, eventually

pytestmark = [pytest.mark.systemd, pytest.mark.engine]

UNIT, AGAIN, TIMER = "archon@again.service", "archon-verify@again.service", "archon-verify@again.timer"
# The unit's own "15 minutes after boot", without the wait.
QUICK = "[Timer]\nOnBootSec=1s\nRandomizedDelaySec=0\n"
OTHERS = """
import json, urllib.request
body = json.dumps({"prompt": "a", "n_predict": 300, "ignore_eos": True}).encode()
while True:
    request = urllib.request.Request("http://127.0.0.1:18220/completion", body, {"Content-Type": "application/json"})
    urllib.request.urlopen(request, timeout=300).read()
    open("/run/others", "w").close()
"""


@pytest.fixture(scope="module")
def endpoint(box: Box, repository: Path, llama_server: Path) -> Iterator[Applied]:
    """The box with an endpoint that was applied and holds."""
    with applied(box, repository, llama_server, "again", 18220) as found:
        assert f"it is not verified again by itself: systemctl enable --now {TIMER}" in found.said
        yield found
        box.run("systemctl", "disable", "--now", TIMER)
        box.run("systemctl", "stop", "others", AGAIN)
        box.run("rm", "-rf", f"/etc/systemd/system/{TIMER}.d")


@pytest.fixture
def running(endpoint: Applied) -> Box:
    """The box that it runs in."""
    return endpoint.box


def verdict(box: Box) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(box("cat", "/run/archon/again.verdict.json"))
    return found


def rechecked(box: Box) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(box.run("/usr/bin/archonctl", "status", "--json").stdout)
    recheck: dict[str, Any] = found["endpoints"][0]["recheck"]
    return recheck


def metric(box: Box, name: str) -> float:
    lines = box("/usr/bin/archonctl", "exporter", "--once", timeout=60).splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(f'{name}{{endpoint="again"}}'))


def calls(box: Box) -> int:
    """How often archon-failed@ ran."""
    said = box("journalctl", "-u", "archon-failed@again", "-o", "cat", "--no-pager")
    return said.count("is not serving as promised")


def called(box: Box) -> bool:
    """True if archon-failed@ ran."""
    return calls(box) > 0


def test_enabled_it_verifies_after_boot_and_the_evidence_is_young_again(endpoint: Applied, running: Box) -> None:
    assert rechecked(running) == {"word": "off", "ran_at": None, "exit": None}
    before, pid = metric(running, "archon_verdict_timestamp_seconds"), running.show(UNIT, "MainPID")
    running.put(f"/etc/systemd/system/{TIMER}.d/quick.conf", QUICK)
    running("systemctl", "daemon-reload")
    running("systemctl", "enable", "--now", TIMER)
    eventually(lambda: verdict(running)["depth"], "admission", lambda: endpoint.journal(AGAIN))
    eventually(lambda: rechecked(running)["exit"], 0, lambda: endpoint.journal(AGAIN))
    found = rechecked(running)
    assert (found["word"], verdict(running)["verdict"]) == ("on", "holds")
    assert found["ran_at"] > before
    assert metric(running, "archon_verdict_timestamp_seconds") > before
    assert metric(running, "archon_evidence_age_seconds") < time.time() - before
    assert running.show(UNIT, "MainPID") == pid
    assert "OnCalendar" in running("systemctl", "show", TIMER, "-p", "TimersCalendar")
    stored = running(
        "ls", "/var/lib/archon/again/verdicts/" + running("readlink", "/var/lib/archon/again/releases/current")
    )
    assert len(stored.splitlines()) >= 2, "the verdict is not kept"
    assert "again" in running.run("/usr/bin/archonctl", "status").stdout
    assert not called(running)


def test_it_waits_while_others_use_the_engine(endpoint: Applied, running: Box) -> None:
    before = verdict(running)["at"]
    running.put("/srv/again/others.py", OTHERS)
    running("systemd-run", "--unit=others", "/usr/bin/python3", "-I", "/srv/again/others.py")
    eventually(lambda: running.run("test", "-e", "/run/others").returncode, 0)
    running("systemctl", "start", "--no-block", AGAIN)
    look = "journalctl", "-u", AGAIN, "-o", "cat", "--no-pager", "-n", "5"
    eventually(lambda: "requests of others to end" in running(*look) or None, True, lambda: endpoint.journal(AGAIN))
    assert running.show(AGAIN, "ActiveState") == {"ActiveState": "activating"}
    assert (verdict(running)["at"], rechecked(running)["exit"]) == (before, None)
    running("systemctl", "stop", "others")
    eventually(lambda: verdict(running)["at"] > before, True, lambda: endpoint.journal(AGAIN))
    eventually(lambda: running.show(AGAIN, "ActiveState")["ActiveState"], "inactive", lambda: endpoint.journal(AGAIN))
    assert running.show(AGAIN, "Result") == {"Result": "success"}


def test_a_journal_that_was_rotated_away_takes_no_evidence_away(running: Box) -> None:
    look = "journalctl", "-u", UNIT, "-o", "cat", "--no-pager", "SYSLOG_IDENTIFIER=archon-start"
    assert "n_ctx" in running(*look)
    running("sh", "-c", "sleep 2; journalctl --rotate; journalctl --vacuum-time=1s")
    assert "n_ctx" not in running(*look), "the boot log is still there"
    running("systemctl", "start", AGAIN, timeout=120)
    found = verdict(running)
    assert found["verdict"] == "holds"
    assert found["probe"]["facts"]["kv_tokens_logged"] == 1024
    (leg,) = (leg for leg in found["probe"]["legs"] if leg["id"] == "ledger")
    assert (leg["status"], "kept with an earlier verdict" in str(leg)) == ("pass", True)


def test_an_endpoint_that_was_stopped_calls_nobody(running: Box) -> None:
    running("systemctl", "stop", UNIT)
    before = calls(running)  # an engine that ends badly when it is stopped calls by its own unit
    done = running.run("systemctl", "start", AGAIN, timeout=60)
    assert done.returncode == 0, done.stderr
    assert running.show(AGAIN, "ExecMainStatus", "Result") == {"ExecMainStatus": "3", "Result": "success"}
    assert calls(running) == before, running(
        "journalctl", "-u", "archon*@again*", "-n", "60", "-o", "cat", "--no-pager"
    )
    assert running.show(UNIT, "ActiveState") == {"ActiveState": "inactive"}


def test_a_broken_contract_calls(endpoint: Applied, running: Box) -> None:
    endpoint.halve()
    done = running.run("systemctl", "start", AGAIN, timeout=150)
    assert done.returncode == 1
    eventually(lambda: rechecked(running)["exit"], 1, lambda: endpoint.journal(AGAIN))
    eventually(lambda: called(running), True, lambda: endpoint.journal(AGAIN))
