"""An endpoint in a box, applied with the installed command beside a real llama-server; and waiting for what comes."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from support.sdbox.box import Box, equip, install

CLI = Path(sys.executable).with_name("archonctl")
_DECLARATION = """
[contract]
seqs = 2
len = 512
[engine]
kind = "llamacpp"
version = "b11434"
binary = "{place}/llama-server"
knobs = {{ {knobs} }}
[model]
path = "{place}/model.gguf"
[service]
user = "archon"
listen = "127.0.0.1:{port}"
load_timeout_s = 200
"""


@dataclass(frozen=True)
class Applied:
    """One endpoint that holds 2 x 512 tokens."""

    name: str
    box: Box
    repository: Path
    said: str
    """What ``apply`` printed."""

    @property
    def unit(self) -> str:
        """Its unit."""
        return f"archon@{self.name}.service"

    @property
    def declaration(self) -> str:
        """Its declaration, inside."""
        return f"/etc/archon/{self.name}.toml"

    def module(self, name: str, *words: str | Path, timeout: float = 240) -> str:
        """``python -m support.NAME`` inside; its output."""
        path = f"PYTHONPATH={self.repository / 'tests'}:{self.repository / 'controller'}"
        return self.box("env", path, sys.executable, "-m", f"support.{name}", *words, timeout=timeout)

    def halve(self) -> None:
        """Half of what is promised: a release with a stale flag, started by hand, that nobody looks at."""
        self.module("place_release", self.declaration, "--ctx-size", "512")
        self.box.put(f"/etc/systemd/system/{self.unit}.d/50-unasked.conf", "[Service]\nExecStartPost=\n")
        self.box("systemctl", "daemon-reload")
        self.box("systemctl", "restart", self.unit, timeout=120)

    def journal(self, unit: str = "", lines: int = 40) -> str:
        """The latest lines of a unit, else of its own."""
        return self.box("journalctl", "-u", unit or self.unit, "-n", str(lines), "-o", "cat", "--no-pager")


@contextmanager
def applied(
    box: Box, repository: Path, engine: Path, name: str, port: int, knobs: str = "threads = 1", tables: str = ""
) -> Iterator[Applied]:
    """Install the command, declare an endpoint (with more ``tables``) and apply it; take all of it away again."""
    place = f"/srv/{name}"
    install(box, CLI)
    equip(box, repository, engine, place)
    declaration = f"/etc/archon/{name}.toml"
    box.put(declaration, _DECLARATION.format(place=place, port=port, knobs=knobs) + tables)
    done = box.run("/usr/bin/archonctl", "apply", declaration, "--yes", timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    found = Applied(name, box, repository, done.stdout)
    try:
        yield found
    finally:
        box.run("systemctl", "stop", found.unit)
        box.run("rm", "-rf", f"/etc/systemd/system/{found.unit}.d", place, f"/var/lib/archon/{name}", declaration)
        box.run(CLI, "install", "--uninstall", timeout=60)


def eventually(look: Callable[[], object], wanted: object, why: Callable[[], str] = str, seconds: float = 180) -> None:
    """Wait until something is so; ``why`` is asked what to say where it never is."""
    end = time.monotonic() + seconds
    while (found := look()) != wanted:
        assert time.monotonic() < end, f"{found!r}, wanted {wanted!r}\n{why()}"
        time.sleep(0.3)
