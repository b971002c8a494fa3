"""One playbook of the collection, run by ansible-playbook in a process group of its own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from archonctl.errors import HostRefusal
from archonctl.fleet.inventory import ansible_program
from archonctl.fleet.rollout.happenings import COLLECTION
from archonctl.service.install import shipped

SSH_BOUNDS = "-o ConnectTimeout=10 -o ServerAliveInterval=5 -o ServerAliveCountMax=3"
"""A host that is gone is said to be within 15 s: without these a kept connection to a host that a partition has cut off
hangs for as long as TCP does (ssh_config(5)). What the inventory or ansible.cfg says comes first."""
TASK_SLACK_S = 120
_GRACE_S = 10.0
_TALK_LINES = 20


@dataclass(frozen=True, slots=True)
class Play:
    """What is run. ``hosts`` are names; ``variables`` go to it as extra variables, and hold no secrets."""

    playbook: str
    inventory: Sequence[str]
    hosts: Sequence[str]
    variables: Mapping[str, object] = field(default_factory=dict)
    forks: int = 10
    check: bool = False
    timeout_s: int = 3600
    """Seconds for a change of one endpoint; a task may take twice that (a way back takes as long), and a little."""


class Running:
    """ansible-playbook while it runs: iterate over its lines."""

    def __init__(self, process: subprocess.Popen[str], talk: list[str]) -> None:
        self._process, self.talk = process, talk

    def __iter__(self) -> Iterator[str]:
        assert self._process.stdout is not None
        yield from self._process.stdout

    def stop(self) -> None:
        """Have it end: as by Ctrl-C, and harder where that is not enough. What runs on hosts is not ended by it."""
        self._signal(signal.SIGINT)
        for number, seconds in ((signal.SIGTERM, _GRACE_S), (signal.SIGKILL, 2 * _GRACE_S)):
            timer = threading.Timer(seconds, self._signal, (number,))
            timer.daemon = True
            timer.start()

    def wait(self) -> int:
        """Its exit code."""
        return self._process.wait()

    def _signal(self, number: int) -> None:
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)


@contextlib.contextmanager
def running(play: Play, environ: Mapping[str, str]) -> Iterator[Running]:
    """Start it. Raises UsageError ``fleet-ansible-missing``, HostRefusal ``fleet-ansible-failed``."""
    program = ansible_program("ansible-playbook", environ)
    with tempfile.TemporaryDirectory(prefix="archonctl-fleet-") as folder:
        (limit := Path(folder, "hosts")).write_text("".join(f"{host}\n" for host in play.hosts), encoding="utf-8")
        (extra := Path(folder, "variables.json")).write_text(json.dumps(dict(play.variables)), encoding="utf-8")
        command = [program, f"{COLLECTION}.{play.playbook}", "--limit", f"@{limit}", "--extra-vars", f"@{extra}"]
        command += ["--forks", str(play.forks), *(["--check", "--diff"] if play.check else [])]
        for source in play.inventory:
            command += ["--inventory", source]
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                env=environment(environ, play, Path(folder)),
                start_new_session=True,  # no terminal: ssh asks nobody, and Ctrl-C reaches it through here alone
            )
        except OSError as err:
            raise HostRefusal("fleet-ansible-failed", f"{err.strerror or err}", where=program) from None
        found = Running(process, [])
        reader = threading.Thread(target=_drain, args=(process, found.talk), daemon=True)
        reader.start()
        try:
            yield found
        finally:
            if process.poll() is None:
                found.stop()
                process.wait()
            reader.join(timeout=5)
            for stream in (process.stdout, process.stderr):
                if stream is not None:
                    stream.close()


def environment(environ: Mapping[str, str], play: Play, folder: Path) -> dict[str, str]:
    """Ansible's settings for a run: our collection, one JSON object a line, and bounds for everything.

    A user's own ansible.cfg counts for the rest.
    """
    others = environ.get("ANSIBLE_COLLECTIONS_PATH", "~/.ansible/collections:/usr/share/ansible/collections")
    bounds = " ".join(filter(None, (environ.get("ANSIBLE_SSH_EXTRA_ARGS", ""), SSH_BOUNDS)))
    ours = {
        "ANSIBLE_COLLECTIONS_PATH": f"{shipped('fleet') / 'ansible'}:{others}",
        "ANSIBLE_STDOUT_CALLBACK": f"{COLLECTION}.events",
        "ANSIBLE_STRATEGY": "linear",
        "ANSIBLE_PIPELINING": "1",
        "ANSIBLE_SSH_EXTRA_ARGS": bounds,
        # not shared with anybody's kept connection, which may have no bounds; short, since a socket's path is limited
        "ANSIBLE_SSH_CONTROL_PATH_DIR": str(folder),
        "ANSIBLE_TASK_TIMEOUT": str(2 * play.timeout_s + TASK_SLACK_S),
        "ANSIBLE_FORCE_COLOR": "0",
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_NOCOWS": "1",
        "ANSIBLE_DEPRECATION_WARNINGS": "0",
        "ANSIBLE_RETRY_FILES_ENABLED": "0",
        "PYTHONUNBUFFERED": "1",
    }
    if "utf" not in (environ.get("LC_ALL") or environ.get("LC_CTYPE") or environ.get("LANG") or "").lower():
        ours["LC_ALL"] = "C.UTF-8"  # Ansible refuses any other encoding
    return {**environ, **ours}


def _drain(process: subprocess.Popen[str], talk: list[str]) -> None:
    assert process.stderr is not None
    with contextlib.suppress(ValueError, OSError):  # closed under it
        for line in process.stderr:
            talk.append(line.rstrip("\n"))
            del talk[:-_TALK_LINES]
