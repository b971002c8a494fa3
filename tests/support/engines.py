"""Small engines to start, and the proof that nothing of them is left."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from archonctl.service.process import EngineProcess

FAKE_ENGINE = Path(__file__).with_name("fake_engine.py")


@dataclass
class Mark:
    """A word in the environment of everything a test starts: descendants inherit it, whatever they do."""

    value: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def env(self) -> dict[str, str]:
        """To be given to what is started."""
        return {"ARCHON_TEST_MARK": self.value, "PATH": "/usr/local/bin:/usr/bin:/bin"}

    def pids(self) -> list[int]:
        """The live processes that carry it, this one left out."""
        wanted = f"ARCHON_TEST_MARK={self.value}".encode()
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            try:
                zombie = entry.joinpath("stat").read_bytes().rpartition(b")")[2].split()[0] in (b"Z", b"X")
                if wanted in entry.joinpath("environ").read_bytes().split(b"\0") and not zombie:
                    found.append(int(entry.name))
            except OSError:
                continue
        return found

    def wait_until_gone(self, seconds: float = 60.0) -> list[int]:
        """What is left when nothing is, or when time is up."""
        end = time.monotonic() + seconds
        while (left := self.pids()) and time.monotonic() < end:
            time.sleep(0.05)
        return left


Launch = Callable[..., EngineProcess]


def wait_for(condition: Callable[[], object], seconds: float = 60.0) -> None:
    """Poll until true; fails the test after ``seconds``."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "did not happen"
        time.sleep(0.02)
