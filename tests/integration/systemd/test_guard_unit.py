"""The guard as it is installed: its account, its keys, and an engine that is restarted behind it."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

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
KNOBS = 'threads = 1, slot-save-path = "/dev/shm/archon-kv", no-kv-unified = true, cache-ram = 0'
TIERS = """
[tiers.dram]
path = "/dev/shm/archon-kv"
capacity_mib = 64
[tiers.disk]
path = "/var/lib/archon-kv"
capacity_mib = 64
"""
FOLDERS = "/etc/tmpfiles.d/archon-kv.conf"
TALK = """
import json, sys, urllib.request
prefilled = 0
for number in range(4):
    prompt = f"{number} " + " ".join(str((number * 7919 + i * 104729) % 9973) for i in range(60))
    body = json.dumps({"prompt": prompt + "." * int(sys.argv[1]), "max_tokens": 1}).encode()
    headers = {"Content-Type": "application/json", "Authorization": "Bearer sk-alice-0123456789"}
    asked = urllib.request.Request("http://127.0.0.1:18311/v1/completions", body, headers)
    prefilled += json.load(urllib.request.urlopen(asked, timeout=60))["timings"]["prompt_n"]
print(prefilled)
"""


def files_of(page: Path) -> dict[str, str]:
    """What a page of the documentation says to put down where: blocks that begin with ``# /path``."""
    found = re.findall(r"^    # (/\S+)\n((?:    .+\n)+)", page.read_text("utf-8"), re.MULTILINE)
    return {path: textwrap.dedent(text) for path, text in found}


@pytest.fixture(scope="module")
def guarded(box: Box, repository: Path, llama_server: Path) -> Iterator[Box]:
    """The box with an endpoint that holds and saves its slots, and the guard of it, with keys of its own."""
    box.run("useradd", "--system", "--shell", "/usr/sbin/nologin", "archon")
    box.put(FOLDERS, files_of(repository / "docs" / "tiers.md")[FOLDERS])
    box("systemd-tmpfiles", "--create", "archon-kv.conf")
    with applied(box, repository, llama_server, "guarded", PORT, KNOBS, TIERS) as found:
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


def journal(box: Box) -> str:
    return box("journalctl", "-u", UNIT, "-o", "cat", "--no-pager")


def test_it_serves_without_privileges_and_with_keys_of_its_own(guarded: Box) -> None:
    assert guarded.show(UNIT, "ActiveState", "User") == {"ActiveState": "active", "User": "archon-guard"}
    assert ask(guarded, "/v1/completions")[0] == "200"
    assert ask(guarded, "/v1/completions", "sk-mallory-987654321") == ["401", "key-unknown"]
    state = json.loads(ask(guarded, "/health", "", 18312)[1])
    assert state["window_tokens"]
    assert state["release"]
    eventually(lambda: "client=alice" in journal(guarded), True)
    assert "sk-" not in journal(guarded)


def test_conversations_outlive_guard_and_engine_as_the_documentation_sets_it_up(guarded: Box, repository: Path) -> None:
    def talk(turn: int) -> int:
        return int(guarded("/usr/bin/python3", "-I", "-c", TALK, str(turn)))

    assert "tiers-folder-unsafe" in journal(guarded)  # an account of its own cannot
    (drop_in,) = (text for path, text in files_of(repository / "docs" / "tiers.md").items() if "archon-guard@" in path)
    guarded.put(f"{DROP_IN}/tiers.conf", drop_in)
    guarded("chown", "root:archon", "/etc/keys")
    guarded("systemctl", "daemon-reload")
    guarded("systemctl", "restart", UNIT)
    try:
        assert guarded.show(UNIT, "User") == {"User": "archon"}
        assert talk(0) > 4 * 200
        assert talk(1) < 100  # two slots, four conversations
        guarded("systemctl", "restart", UNIT)
        assert talk(2) < 100
        guarded("systemctl", "stop", UNIT)
        guarded("systemctl", "restart", "archon@guarded", timeout=120)
        guarded("systemctl", "start", UNIT)
        assert talk(3) < 100
        shown = guarded("/usr/bin/archonctl", "tiers", "status", "guarded", "--json")
        assert sum(each["conversations"] for each in json.loads(shown)["places"]) >= 2
        planned = json.loads(guarded("/usr/bin/archonctl", "tiers", "plan", "guarded", "--json"))
        sources = {each["name"]: each["source"] for each in planned["tiers"]}
        assert sources["dram"].startswith("bandwidth measured")  # by the unit's account, read by root
    finally:
        guarded("rm", f"{DROP_IN}/tiers.conf")
        guarded("chown", "root:archon-guard", "/etc/keys")
        guarded("systemctl", "daemon-reload")
        guarded("systemctl", "restart", UNIT)


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
