"""The guard as it is installed: its account, its keys, and an engine that is restarted behind it."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from support.sdbox.box import Box
from support.sdbox.endpoint import applied, eventually

pytestmark = [pytest.mark.systemd, pytest.mark.engine]

PORT = 18310
UNIT = "archon-guard@guarded.service"
DROP_IN = f"/etc/systemd/system/{UNIT}.d"
EDIT = """
[Service]
Environment=ARCHON_GUARD_LISTEN=127.0.0.1:18311
Environment=ARCHON_GUARD_ADMIN=127.0.0.1:18312
ExecStart=
ExecStart=/usr/bin/archonctl guard %i --listen ${ARCHON_GUARD_LISTEN} --admin ${ARCHON_GUARD_ADMIN} --keys /etc/keys
"""
ASK = """
import json, sys, urllib.error, urllib.request
url, key = sys.argv[1:]
body = json.dumps({"prompt": "hi", "max_tokens": 4}).encode() if "completions" in url else None
headers = {"Content-Type": "application/json"} | ({"Authorization": "Bearer " + key} if key else {})
try:
    answer = urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=60)
    print(answer.status, json.dumps(json.load(answer)))
except urllib.error.HTTPError as err:
    print(err.code, json.load(err)["error"]["code"])
"""


@pytest.fixture(scope="module")
def guarded(box: Box, repository: object, llama_server: object) -> Iterator[Box]:
    """The box with an endpoint that holds, and the guard of it, with keys of its own."""
    with applied(box, repository, llama_server, "guarded", PORT, "threads = 1") as found:  # type: ignore[arg-type]
        # Not by LoadCredential=: in a box systemd cannot give the folder of credentials to an account.
        box.put("/etc/keys", "alice:sk-alice-0123456789\n")
        box("chown", "root:archon-guard", "/etc/keys")
        box("chmod", "640", "/etc/keys")
        box.put(f"{DROP_IN}/own.conf", EDIT)
        box("systemctl", "daemon-reload")
        assert box.run("systemctl", "start", UNIT).returncode == 0, found.journal(UNIT)
        yield found.box
        box.run("systemctl", "stop", UNIT)
        box.run("rm", "-rf", DROP_IN, "/etc/keys")
        box("systemctl", "daemon-reload")


def ask(box: Box, path: str, key: str = "sk-alice-0123456789", port: int = 18311) -> list[str]:
    return box("/usr/bin/python3", "-I", "-c", ASK, f"http://127.0.0.1:{port}{path}", key).strip().split(maxsplit=1)


def test_it_serves_without_privileges_and_with_keys_of_its_own(guarded: Box) -> None:
    assert guarded.show(UNIT, "ActiveState", "User") == {"ActiveState": "active", "User": "archon-guard"}
    assert ask(guarded, "/v1/completions")[0] == "200"
    assert ask(guarded, "/v1/completions", "sk-mallory-987654321") == ["401", "key-unknown"]
    state = json.loads(ask(guarded, "/health", "", 18312)[1])
    assert state["window_tokens"]
    assert state["release"]
    journal = guarded("journalctl", "-u", UNIT, "-o", "cat", "--no-pager")
    assert "client=alice" in journal
    assert "sk-" not in journal


def test_a_request_waits_for_an_engine_that_is_restarted(guarded: Box) -> None:
    guarded("systemctl", "restart", "--no-block", "archon@guarded")
    for _ in range(3):
        assert ask(guarded, "/v1/completions")[0] == "200"
    eventually(lambda: guarded.show("archon@guarded.service", "ActiveState"), {"ActiveState": "active"})


def test_a_killed_guard_is_started_again_and_a_stopped_one_stays_stopped(guarded: Box) -> None:
    guarded("systemctl", "kill", "-s", "KILL", UNIT)
    again = {"ActiveState": "active", "NRestarts": "1"}
    eventually(lambda: guarded.show(UNIT, "ActiveState", "NRestarts"), again)
    assert ask(guarded, "/v1/completions")[0] == "200"
    guarded("systemctl", "stop", UNIT)
    assert guarded.show(UNIT, "ActiveState", "Result") == {"ActiveState": "inactive", "Result": "success"}
