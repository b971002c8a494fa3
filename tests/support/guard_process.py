"""A real llama-server, and `archonctl guard` before it as a user starts it: processes that can be killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.ports import free

CLI = Path(sys.executable).with_name("archonctl")


def wait_for(condition: Callable[[], object], seconds: float = 180.0, what: str = "") -> None:
    """Poll until true."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"did not happen: {what}"
        time.sleep(0.05)


def get(url: str) -> Any:
    """JSON from an address; None where there is none."""
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return json.loads(answer.read() or b"null")
    except (OSError, ValueError):
        return None


@dataclass
class Process:
    """One of the two, with its log."""

    argv: list[str]
    log: Path
    url: str
    env: dict[str, str]
    process: subprocess.Popen[bytes] | None = None

    def start(self, *, wait: bool = True) -> None:
        with self.log.open("ab") as file:
            self.process = subprocess.Popen(self.argv, stdout=file, stderr=file, stdin=subprocess.DEVNULL, env=self.env)
        if wait:
            wait_for(lambda: get(f"{self.url}/health") is not None, what=self.log.read_text("utf-8", "replace")[-1500:])

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def end(self) -> None:
        """Kill it, if it runs."""
        if self.process is not None and self.process.poll() is None:
            self.kill()

    def stop(self) -> int:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(120)

    def text(self) -> str:
        return self.log.read_text("utf-8", "replace")


@dataclass
class Stand:
    """Engine and guard."""

    engine: Process
    guard: Process
    url: str
    admin: str

    def busy_slots(self) -> int:
        """Slots of the engine that work for somebody."""
        found = get(f"{self.engine.url}/slots")
        return sum(slot["is_processing"] for slot in found) if found is not None else 0


def environment(folder: Path) -> dict[str, str]:
    """This one without what steers archonctl, and with a state of its own."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("ARCHON")}
    return kept | {"ARCHON_STATE_DIR": str(folder / "state")}


@contextmanager
def guard_before(
    engine: Process, port: int, binary: Path, model: Path, folder: Path, options: tuple[str, ...] = ()
) -> Iterator[Stand]:
    """The guard of an engine that runs at a port of this machine."""
    listen, admin = free(), free()
    declaration = folder / "guarded.toml"
    declaration.write_text(
        f'[contract]\nseqs = 2\nlen = 1024\n[engine]\nkind = "llamacpp"\nversion = "b11434"\nbinary = "{binary}"\n'
        f'[model]\npath = "{model}"\n[service]\nlisten = "127.0.0.1:{port}"\n'
    )
    argv = [str(CLI), "guard", str(declaration), "--listen", f"127.0.0.1:{listen}", "--admin", f"127.0.0.1:{admin}"]
    guard = Process([*argv, *options], folder / "guard.log", f"http://127.0.0.1:{admin}", environment(folder))
    try:
        guard.start()
        yield Stand(engine, guard, f"http://127.0.0.1:{listen}", f"http://127.0.0.1:{admin}")
    finally:
        guard.end()


@contextmanager
def stand(server: Path, model: Path, folder: Path, *options: str, guard: tuple[str, ...] = ()) -> Iterator[Stand]:
    """Both of them, running. ``options`` are the engine's."""
    port = free()
    argv = [str(server), "-m", str(model), "--port", str(port), "-t", "1", "--no-webui", *options]
    engine = Process(argv, folder / "engine.log", f"http://127.0.0.1:{port}", environment(folder))
    try:
        engine.start()
        with guard_before(engine, port, server, model, folder, guard) as both:
            yield both
    finally:
        engine.end()
