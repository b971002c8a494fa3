"""Three machines with sshd and a real llama-server, once for a module; the controller's command."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.sdbox.box import Box, equip, seen, why_no_box
from support.sdbox.fleet import Fleet, why_no_fleet

CLI = Path(sys.executable).with_name("archonctl")
NAME = "turn"
UNIT = f"archon@{NAME}.service"
ENGINE = "/srv/turn/llama-server"
LEASE = "/run/archon/fleet/.lease.json"
SECRET = "sk-of-the-lab-4711"
HOLDS = f'exec {ENGINE} "$@"'
SHORT = f'exec {ENGINE} "$@" --ctx-size 256'
DECLARATION = """
[contract]
seqs = 1
len = 512
[engine]
kind = "llamacpp"
version = "b11434"
binary = "/srv/turn/{engine}"
knobs = {{ threads = 1, batch-size = {batch} }}
[model]
path = "/srv/turn/model.gguf"
[host]
detect = true
[service]
user = "archon"
listen = "127.0.0.1:18400"
"""


@dataclass(frozen=True)
class Answer:
    """What one run of the controller's command came to."""

    code: int
    value: dict[str, Any]
    talk: str

    def host(self, name: str) -> dict[str, Any]:
        """One host of it."""
        return next(each for each in self.value["hosts"] if each["host"] == name)

    @property
    def words(self) -> dict[str, str]:
        """Every host's word."""
        return {each["host"]: each["word"] for each in self.value["hosts"]}


@dataclass
class Controller:
    """``archonctl fleet`` within the fleet's network, for one operator with an own home."""

    fleet: Fleet
    operator: str = "alice@one"

    def start(self, action: str, inventory: str, *words: str) -> subprocess.Popen[str]:
        """Begin it."""
        home = self.fleet.folder / self.operator
        home.mkdir(exist_ok=True)
        keep = {name: value for name, value in os.environ.items() if not name.startswith(("ARCHON", "ANSIBLE"))}
        environ = keep | {"HOME": str(home), "XDG_CACHE_HOME": str(home / "cache"), "ARCHON_OPERATOR": self.operator}
        command = [*self.fleet.lan, CLI, "fleet", action, "-i", str(self.fleet.folder / inventory), *words, "--json"]
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ
        )

    def __call__(self, action: str, inventory: str = "inventory", *words: str, timeout: float = 350) -> Answer:
        """Run it to its end."""
        return self.finish(self.start(action, inventory, *words), timeout)

    def finish(self, process: subprocess.Popen[str], timeout: float = 350) -> Answer:
        """Wait for one that was started."""
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
            pytest.fail(f"it did not end\n{out}\n{err}")
        assert out, err
        return Answer(process.returncode, json.loads(out), err)

    def by(self, operator: str) -> Controller:
        """The same for somebody else."""
        return Controller(self.fleet, operator)


@dataclass
class Lab:
    """The fleet and its controller."""

    fleet: Fleet
    controller: Controller
    batch: int = 64

    def inventory(self, name: str, package: str = "", keys: Mapping[str, str] = {}, **files: str) -> str:
        """Write one: every host has the endpoint, from a file of its own where ``files`` names one, and an own key."""
        hosts = {}
        for host in self.fleet.boxes:
            hosts[host] = f"archon_endpoints=\"['{files.get(host, f'{NAME}.toml')}']\""
            if key := keys.get(host):
                hosts[host] += f" ansible_ssh_private_key_file={self.fleet.folder / key}"
        path = self.fleet.inventory(name, hosts)
        if package:
            path.write_text(f"{path.read_text()}archon_package={package}\n")
        return name

    def keep_secret(self, name: str, host: str, path: str) -> None:
        """One more API key of a host, in an inventory."""
        inventory = self.fleet.folder / name
        secret = f"archon_secrets=\"[{{'path': '{path}', 'content': '{SECRET}'}}]\""
        inventory.write_text(inventory.read_text().replace(f"\n{host} ", f"\n{host} {secret} "))

    def declare(self, engine: str = "llama-server") -> None:
        """Something that was not declared before."""
        self.batch += 1
        (self.fleet.folder / f"{NAME}.toml").write_text(DECLARATION.format(engine=engine, batch=self.batch))

    def wrapper(self, name: str, lines: Mapping[str, str]) -> str:
        """A program of its own on each host, by host."""
        for host, line in lines.items():
            self.fleet.boxes[host].put(f"/srv/turn/{name}", f"#!/bin/sh\n{line}\n", "755")
        return name

    def status(self, host: str) -> dict[str, Any]:
        """What archonctl on the host itself says."""
        found: dict[str, Any] = json.loads(self.fleet.boxes[host].run("archonctl", "status", NAME, "--json").stdout)
        return found["endpoints"][0]

    def declared(self, host: str) -> str:
        """The declaration that lies on the host."""
        return self.fleet.boxes[host]("cat", f"/etc/archon/{NAME}.toml")

    def take_over(self, host: str, operator: str) -> None:
        """The lease of another rollout in place of whose ever there is."""
        now = time.time()
        value = {"rollout": "another", "operator": operator, "since": now, "until": now + 3600}
        self.fleet.boxes[host].put(LEASE, json.dumps(value))

    def release(self, *hosts: str) -> None:
        """Take leases away that a killed rollout left."""
        for host in hosts:
            self.fleet.boxes[host]("rm", "-f", LEASE)

    def wait_ended(self) -> None:
        """Until no ansible-playbook of this lab is left, as one whose reader was killed."""
        theirs = ["pgrep", "-f", f"ansible-playbook.*{self.fleet.folder}"]
        for _ in range(1200):
            if subprocess.run(theirs, capture_output=True, check=False).returncode:
                return
            time.sleep(0.1)
        pytest.fail("a rollout whose reader was killed goes on")

    def wait_phase(self, host: str, phase: str, rollout: subprocess.Popen[str]) -> None:
        """Until a change on the host is that far; not longer than the rollout itself."""
        for _ in range(3000):
            if rollout.poll() is not None:
                pytest.fail(f"{host} never was {phase}: {rollout.communicate()}")
            if f'"phase": "{phase}"' in self.fleet.boxes[host].run("cat", f"/var/lib/archon/{NAME}/apply.json").stdout:
                return
            time.sleep(0.02)
        pytest.fail(f"{host} never was {phase}")

    def wait_quiet(self, host: str) -> None:
        """Until no change is under way there, and what asked for it has ended, too."""
        for _ in range(1200):
            if self.fleet.boxes[host].run("pgrep", "-f", "archonctl apply|AnsiballZ|^/usr/bin/python3$").returncode:
                return
            time.sleep(0.1)
        pytest.fail(f"{host} is still changing")


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, repository: Path, llama_server: Path) -> Iterator[Lab]:
    """Booted, with the engine; archonctl comes with the first rollout."""
    if why := why_no_box() or why_no_fleet():
        pytest.skip(f"no fleet: {why}")
    folder = tmp_path_factory.mktemp("fleet")
    engine = llama_server.resolve().parent
    binds = seen(repository, engine)
    made = subprocess.run([CLI, "install", "--deb", folder], capture_output=True, text=True, check=True)
    package = Path(made.stdout.strip())
    fleet = Fleet(folder / f"f{os.getpid()}", 3, binds)
    try:
        fleet.up()

        def prepare(box: Box) -> None:
            equip(box, repository, llama_server, "/srv/turn")
            box.put(f"/etc/systemd/system/{UNIT}.d/90-quick.conf", "[Service]\nRestartSec=200ms\n")

        with ThreadPoolExecutor(2) as pool:
            list(pool.map(prepare, fleet.boxes.values()))
        lab = Lab(fleet, Controller(fleet))
        lab.inventory("inventory", package=f"../{package.name}")  # from the inventory's folder
        yield lab
    finally:
        fleet.down()
