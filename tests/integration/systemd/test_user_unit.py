"""The unit of a user's own service manager: no root, the same promise."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.sdbox.box import Box, equip, install
from support.sdbox.endpoint import eventually

pytestmark = [pytest.mark.systemd, pytest.mark.engine]

CLI = Path(sys.executable).with_name("archonctl")
STATE = "/home/alice/.local/state/archonctl"
DECLARATION = """
[contract]
seqs = 1
len = 512
[engine]
kind = "llamacpp"
version = "b11434"
binary = "/srv/user/llama-server"
knobs = { threads = 1 }
[model]
path = "/srv/user/model.gguf"
[service]
listen = "127.0.0.1:18401"
"""

As = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def alice(box: Box, repository: Path, llama_server: Path) -> Iterator[As]:
    """``alice("systemctl", "--user", ...)``: a command as a user who has a service manager of her own."""
    install(box, CLI)
    box("useradd", "--create-home", "--shell", "/bin/sh", "alice")
    # where the journal is kept on disk she may read that of her own units anyway (journald.conf(5), SplitMode=)
    box("usermod", "-aG", "systemd-journal", "alice")
    uid = box("id", "-u", "alice")
    box("systemctl", "start", f"user@{uid}.service")
    equip(box, repository, llama_server, "/srv/user")
    box.put("/srv/user/small.toml", DECLARATION)

    def run(*words: str, timeout: float = 180) -> subprocess.CompletedProcess[str]:
        env = ["env", "-i", "HOME=/home/alice", f"XDG_RUNTIME_DIR=/run/user/{uid}", "PATH=/usr/bin:/bin"]
        drop = ["setpriv", "--reuid=alice", "--regid=alice", "--init-groups"]
        return box.run(*drop, *env, *words, timeout=timeout)

    done = run("archonctl", "install", "--user")
    assert done.returncode == 0, done.stderr
    assert run("systemctl", "--user", "daemon-reload").returncode == 0
    done = run("archonctl", "apply", "/srv/user/small.toml", "--user", timeout=120)
    assert done.returncode == 0, done.stderr + done.stdout
    yield run
    run("systemctl", "--user", "stop", "archon@small.service")
    box.run("systemctl", "stop", f"user@{uid}.service")
    box.run("userdel", "--remove", "--force", "alice")
    box.run(CLI, "install", "--uninstall")


def log(box: Box) -> str:
    return box("journalctl", "_SYSTEMD_USER_UNIT=archon@small.service", "-o", "cat", "--no-pager")


def shown(alice: As, *names: str) -> dict[str, str]:
    words = ["systemctl", "--user", "show", "archon@small.service", *(f"-p{name}" for name in names)]
    return dict(line.split("=", 1) for line in alice(*words).stdout.splitlines())


def test_an_ordinary_user_applies_and_everything_is_hers(alice: As, box: Box) -> None:
    found = shown(alice, "StatusText", "MainPID", "ActiveState")
    assert found["ActiveState"] == "active", log(box)
    assert found["StatusText"].startswith("holds: 512 KV tokens of 512")
    assert box("stat", "-c", "%U", f"/proc/{found['MainPID']}", f"{STATE}/small/releases/current") == "alice\nalice"
    status = json.loads(alice("archonctl", "status", "--user", "--json").stdout)["endpoints"]
    assert [(each["endpoint"], each["word"]) for each in status] == [("small", "holds")]
    drift = alice("archonctl", "drift", "small", "--user")
    assert drift.returncode == 0, drift.stdout
    assert "listening" in alice("archonctl", "logs", "small", "--user").stdout
    assert "no endpoint is installed" in box("/usr/bin/archonctl", "status")
    again = alice("archonctl", "apply", "/srv/user/small.toml", "--user")
    assert (again.returncode, "unchanged" in again.stdout) == (0, True)
    probed = alice("archonctl", "probe", "/srv/user/small.toml", "--leg", "admission")
    assert probed.returncode == 0, probed.stdout + probed.stderr


def test_a_release_of_hers_that_does_not_hold_is_rolled_back(alice: As, box: Box) -> None:
    before = box("readlink", f"{STATE}/small/releases/current")
    box.put("/srv/user/short", '#!/bin/sh\nexec /srv/user/llama-server "$@" --ctx-size 256\n', "755")
    words = ["--user", "--yes", "--set", "engine.binary=/srv/user/short"]
    done = alice("archonctl", "apply", "/srv/user/small.toml", *words, timeout=120)
    assert done.returncode == 6, done.stdout + done.stderr
    assert box("readlink", f"{STATE}/small/releases/current") == before
    assert shown(alice, "ActiveState", "NRestarts") == {"ActiveState": "active", "NRestarts": "0"}


def test_what_only_root_could_do_is_refused_by_name(alice: As, box: Box) -> None:
    done = alice("archonctl", "apply", "/srv/user/small.toml", "--user", "--set", "service.user=archon")
    assert (done.returncode, "user-not-yours" in done.stderr) == (5, True)
    done = alice("archonctl", "apply", "/srv/user/small.toml", "--yes")
    assert (done.returncode, "not-permitted" in done.stderr) == (5, True)
    done = box.run("/usr/bin/archonctl", "apply", "/srv/user/small.toml", "--user")
    assert (done.returncode, "user-is-root" in done.stderr) == (2, True)


def test_her_timer_asks_again(alice: As, box: Box) -> None:
    done = alice("systemctl", "--user", "start", "archon-verify@small.service", timeout=60)
    assert done.returncode == 0, box("journalctl", "_SYSTEMD_USER_UNIT=archon-verify@small.service", "--no-pager")
    uid = box("id", "-u", "alice")
    assert json.loads(box("cat", f"/run/user/{uid}/archon/small.verdict.json"))["depth"] == "admission"
    assert alice("systemctl", "--user", "enable", "archon-verify@small.timer").returncode == 0


def test_a_contract_that_breaks_fails_it_for_good(alice: As, box: Box) -> None:
    assert alice("archonctl", "stop", "small", "--user").returncode == 0
    assert shown(alice, "ActiveState")["ActiveState"] == "inactive"
    box("sh", "-c", f"sed -i s/llama-server/gone/ {STATE}/small/releases/current/start")
    try:
        assert alice("systemctl", "--user", "start", "archon@small.service", timeout=120).returncode == 1
        alert = ["journalctl", "_SYSTEMD_USER_UNIT=archon-failed@small.service", "-o", "cat", "--no-pager"]
        eventually(lambda: "the endpoint small is not serving as promised" in box(*alert), True)
        assert shown(alice, "NRestarts", "ActiveState") == {"ActiveState": "failed", "NRestarts": "0"}
    finally:
        box("sh", "-c", f"sed -i s/gone/llama-server/ {STATE}/small/releases/current/start")
