"""The unit of a user's own service manager: no root, the same promise."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.sdbox.box import Box, install

pytestmark = [pytest.mark.systemd, pytest.mark.engine]

CLI = Path(sys.executable).with_name("archonctl")
STATE = "/home/alice/.local/state/archonctl"
DECLARATION = """
[contract]
seqs = 1
len = 256
[engine]
kind = "llamacpp"
version = "b11434"
binary = "/srv/user/llama-server"
knobs = { threads = 1 }
[model]
path = "/srv/user/model.gguf"
[service]
listen = "127.0.0.1:18400"
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
    folder = llama_server.resolve().parent
    box("mkdir", "-p", "/srv/user")
    box("cp", "-L", folder / "llama-server", *folder.glob("*.so*"), "/srv/user")
    path = f"PYTHONPATH={repository / 'tests'}:{repository / 'controller'}"
    box("env", path, sys.executable, "-m", "support.tiny_gguf", "llama", "/srv/user/model.gguf")
    box.put("/srv/user/small.toml", DECLARATION)
    words = ["-m", "support.place_release", "/srv/user/small.toml"]
    box("env", path, f"ARCHON_STATE_DIR={STATE}", sys.executable, *words)
    box("chown", "-R", "alice:alice", "/home/alice")

    def run(*words: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
        env = ["env", "-i", "HOME=/home/alice", f"XDG_RUNTIME_DIR=/run/user/{uid}", "PATH=/usr/bin:/bin"]
        drop = ["setpriv", "--reuid=alice", "--regid=alice", "--init-groups"]
        return box.run(*drop, *env, *words, timeout=timeout)

    done = run("archonctl", "install", "--user")
    assert done.returncode == 0, done.stderr
    assert run("systemctl", "--user", "daemon-reload").returncode == 0
    yield run
    run("systemctl", "--user", "stop", "archon@small.service")
    box.run("systemctl", "stop", f"user@{uid}.service")
    box.run("userdel", "--remove", "--force", "alice")
    box.run(CLI, "install", "--uninstall")


def log(box: Box) -> str:
    return box("journalctl", "_SYSTEMD_USER_UNIT=archon@small.service", "-o", "cat", "--no-pager")


def test_a_users_unit_starts_when_the_contract_is_verified(alice: As, box: Box) -> None:
    done = alice("systemctl", "--user", "start", "archon@small.service", timeout=120)
    assert done.returncode == 0, log(box)
    words = ["systemctl", "--user", "show", "archon@small.service", "-p", "StatusText", "-p", "MainPID"]
    shown = dict(line.split("=", 1) for line in alice(*words).stdout.splitlines())
    assert shown["StatusText"].startswith("holds: 256 KV tokens of 256")
    assert box("stat", "-c", "%U", f"/proc/{shown['MainPID']}") == "alice"
    uid = box("id", "-u", "alice")
    assert json.loads(box("cat", f"/run/user/{uid}/archon/small.verdict.json"))["verdict"] == "holds"
    assert alice("systemctl", "--user", "stop", "archon@small.service").returncode == 0


def test_a_contract_that_breaks_fails_it_for_good(alice: As, box: Box) -> None:
    box("sh", "-c", f"sed -i s/llama-server/gone/ {STATE}/small/releases/current/start")
    try:
        assert alice("systemctl", "--user", "start", "archon@small.service", timeout=120).returncode == 1
        time.sleep(0.5)
        words = ["systemctl", "--user", "show", "archon@small.service", "-p", "NRestarts", "-p", "ActiveState"]
        assert sorted(alice(*words).stdout.split()) == ["ActiveState=failed", "NRestarts=0"]
    finally:
        box("sh", "-c", f"sed -i s/gone/llama-server/ {STATE}/small/releases/current/start")
