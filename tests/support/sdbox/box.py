"""A machine with a real systemd, for tests: ``sd-box.sh`` as an object."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

TOOL = Path(__file__).with_name("sd-box.sh")


def seen(*places: str | Path) -> list[str]:
    """Binds of these places and of the Python that runs, read-only. What lies below /usr a box has anyway, and
    writes to: on a machine that runs the system's own Python it is no bind."""
    found = dict.fromkeys(map(Path, (*places, sys.prefix, sys.base_prefix)))
    return [f"ro:{place}" for place in found if not place.is_relative_to("/usr")]


@dataclass
class Box:
    """One box. ``folder`` names it; ``binds`` are host paths that must be seen inside (``ro:`` before a path)."""

    folder: Path
    binds: Sequence[str] = ()
    env: dict[str, str] = field(default_factory=dict)

    def _tool(self, *words: str, timeout: float = 180, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [TOOL, words[0], self.folder, *words[1:]],
            env=os.environ | self.env,
            input=stdin,
            text=True,
            capture_output=True,
            timeout=timeout,
            check=False,
        )

    def up(self) -> Box:
        """Boot, or fail with what the tool said."""
        done = self._tool("up", *self.binds)
        assert done.returncode == 0, done.stderr
        return self

    def down(self) -> None:
        """Power off; nothing where it never came up, whose error is the one to show."""
        if not (self.folder / "pid1").exists():
            return
        done = self._tool("down")
        assert done.returncode == 0, done.stderr

    def kill(self) -> None:
        """The power cut: everything in it is gone at once."""
        os.kill(int((self.folder / "pid1").read_text()), signal.SIGKILL)

    def run(self, *words: str | Path, timeout: float = 180) -> subprocess.CompletedProcess[str]:
        """A command inside; its status and both outputs."""
        return self._tool("exec", *map(str, words), timeout=timeout)

    def __call__(self, *words: str | Path, timeout: float = 180) -> str:
        """A command inside that must succeed; its output."""
        done = self.run(*words, timeout=timeout)
        assert done.returncode == 0, f"{words} -> {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout.strip()

    def put(self, path: str | Path, text: str, mode: str = "644") -> None:
        """Write a file inside."""
        script = 'mkdir -p "$(dirname "$1")" && cat >"$1" && chmod "$2" "$1"'
        done = self._tool("exec", "sh", "-c", script, "_", str(path), mode, stdin=text)
        assert done.returncode == 0, done.stderr

    def show(self, unit: str, *names: str) -> dict[str, str]:
        """Properties of a unit."""
        lines = self("systemctl", "show", unit, *(f"-p{name}" for name in names)).splitlines()
        return dict(line.split("=", 1) for line in lines)


def why_no_box() -> str:
    """What this machine lacks for a box; empty if nothing."""
    if os.geteuid() != 0:
        return "needs root"
    for tool in ("unshare", "nsenter", "findmnt", "/lib/systemd/systemd"):
        if shutil.which(tool) is None:
            return f"needs {tool}"
    found = subprocess.run(["findmnt", "-n", "-t", "cgroup2"], capture_output=True, check=False)
    return "" if found.stdout else "needs a mounted cgroup2"


def install(box: Box, command: Path) -> None:
    """``archonctl install`` inside; skips where the system's own Python has another version than this one."""
    minor = f"{sys.version_info.major}.{sys.version_info.minor}"
    if box.run("test", "-x", f"/usr/bin/python{minor}").returncode:
        pytest.skip(f"installing needs the system's own python{minor}, as this environment has")
    box(command, "install", timeout=120)


def equip(box: Box, repository: Path, llama_server: Path, place: str) -> None:
    """An engine and a small model inside, as ``place``/llama-server and ``place``/model.gguf, for every account."""
    folder = llama_server.resolve().parent
    box("mkdir", "-p", place)
    box("cp", "-L", folder / "llama-server", *folder.glob("*.so*"), place)
    path = f"PYTHONPATH={repository / 'tests'}:{repository / 'controller'}"
    box("env", path, sys.executable, "-m", "support.tiny_gguf", "llama", f"{place}/model.gguf")
